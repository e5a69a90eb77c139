// StepGrid: step of an epoch -> the positions that one rank delivers in it.
//
// Step t is one global batch, the positions [t * batch_size, (t + 1) * batch_size).
// Sorted by lane (order.h), its n positions are cut into slices: rank r of W takes
// [r * n / W, (r + 1) * n / W). So a step does not depend on the number of ranks, and
// all ranks make the same number of steps.
//
// If an epoch resumes with another batch size, its first step has `phase` positions.
// Explicit batches of the user are given by `bounds`.
#pragma once

#include <cstdint>
#include <vector>

namespace fastrec {

struct PositionRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

struct StepGrid {
  std::uint64_t n_positions = 0;
  std::uint64_t batch_size = 1;  // of all ranks together
  std::uint64_t phase = 0;       // below batch_size
  bool drop_last = false;        // omit an incomplete last step
  bool pad_last = false;         // pad every step to its full number of rows
  std::uint64_t rank = 0;
  std::uint64_t world_size = 1;
  std::uint64_t n_lanes = 1;
  // Explicit batches: the first position of each, and the end of the last one.
  std::vector<std::uint64_t> bounds = {};

  std::uint64_t n_steps() const noexcept;

  // The positions of a step, for all ranks. `step` must be below n_steps().
  PositionRange range(std::uint64_t step) const noexcept;

  // The step that begins at `position`, which must be the beginning of a step;
  // n_steps() at the end.
  std::uint64_t step_at(std::uint64_t position) const noexcept;

  // Appends this rank's positions in a step.
  void positions(std::uint64_t step, std::vector<std::uint64_t>* positions) const;

  // The rows of this rank's batch: `n_valid` records and padding.
  std::uint64_t n_rows(std::uint64_t step, std::uint64_t n_valid) const noexcept;
};

}  // namespace fastrec
