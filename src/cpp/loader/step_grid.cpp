#include "loader/step_grid.h"

#include <algorithm>

namespace fastrec {
namespace {

// n * rank / world_size without overflow.
std::uint64_t cut(std::uint64_t n, std::uint64_t rank, std::uint64_t world_size) {
  return n / world_size * rank + n % world_size * rank / world_size;
}

}  // namespace

std::uint64_t StepGrid::n_steps() const noexcept {
  if (!bounds.empty()) return bounds.size() - 1;
  const std::uint64_t n = n_positions - phase;
  return (phase != 0) + n / batch_size + (!drop_last && n % batch_size != 0);
}

PositionRange StepGrid::range(std::uint64_t step) const noexcept {
  if (!bounds.empty()) return {bounds[step], bounds[step + 1] - bounds[step]};
  if (phase != 0 && step == 0) return {0, phase};
  const std::uint64_t first = phase + (step - (phase != 0)) * batch_size;
  return {first, std::min(batch_size, n_positions - first)};
}

std::uint64_t StepGrid::step_at(std::uint64_t position) const noexcept {
  if (!bounds.empty()) {
    return static_cast<std::uint64_t>(
        std::lower_bound(bounds.begin(), bounds.end(), position) - bounds.begin());
  }
  if (position >= n_positions) return n_steps();
  return std::min(n_steps(), (position + batch_size - 1) / batch_size);
}

void StepGrid::positions(std::uint64_t step,
                         std::vector<std::uint64_t>* positions) const {
  const PositionRange all = range(step);
  std::uint64_t begin = cut(all.count, rank, world_size);
  std::uint64_t n_wanted = cut(all.count, rank + 1, world_size) - begin;
  const std::uint64_t first_lane = all.first % n_lanes;
  for (std::uint64_t lane = 0; n_wanted != 0; ++lane) {
    // The first position of the lane in this step, as a distance from all.first.
    std::uint64_t at =
        lane >= first_lane ? lane - first_lane : lane + n_lanes - first_lane;
    if (at >= all.count) continue;
    const std::uint64_t n_here = (all.count - 1 - at) / n_lanes + 1;
    if (begin >= n_here) {
      begin -= n_here;
      continue;
    }
    at += begin * n_lanes;
    std::uint64_t n_taken = std::min(n_here - begin, n_wanted);
    n_wanted -= n_taken;
    begin = 0;
    for (; n_taken != 0; --n_taken, at += n_lanes) positions->push_back(all.first + at);
  }
}

std::uint64_t StepGrid::n_rows(std::uint64_t step,
                               std::uint64_t n_valid) const noexcept {
  if (!pad_last) return n_valid;
  const std::uint64_t n = bounds.empty() ? batch_size : range(step).count;
  return (n + world_size - 1) / world_size;
}

}  // namespace fastrec
