// Order: step of an epoch -> positions, position -> record.
//
// Positions number the records of an epoch in the order of delivery. A step is one
// batch; step t covers positions [t * batch_size, (t + 1) * batch_size).
#pragma once

#include <algorithm>
#include <cstdint>

namespace fastrec {

struct PositionRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

// How the positions of an epoch are cut into steps.
struct StepGrid {
  std::uint64_t batch_size = 1;
  bool drop_last = false;

  std::uint64_t n_steps(std::uint64_t n_records) const noexcept {
    return n_records / batch_size + (!drop_last && n_records % batch_size != 0);
  }

  // `step` must be below n_steps(n_records).
  PositionRange range(std::uint64_t step, std::uint64_t n_records) const noexcept {
    const std::uint64_t first = step * batch_size;
    return {first, std::min(batch_size, n_records - first)};
  }
};

}  // namespace fastrec
