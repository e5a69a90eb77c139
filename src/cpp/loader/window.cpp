#include "loader/window.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace fastrec {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

std::vector<std::uint64_t> ends_of(const std::vector<RecordRange>& runs) {
  std::vector<std::uint64_t> ends{0};
  for (const RecordRange& run : runs) ends.push_back(ends.back() + run.count);
  return ends;
}

}  // namespace

WindowDraws::WindowDraws(std::uint64_t n_slots, std::uint64_t key)
    : n_slots_(n_slots), key_(key) {}

std::uint64_t WindowDraws::slot(std::uint64_t position) const noexcept {
  return multiply_high(mix64(key_ + (position + 1) * kGolden), n_slots_);
}

Permutation WindowDraws::last(std::uint64_t n_left) const {
  return {n_left, mix64(key_ ^ kGolden)};
}

WindowOrder::WindowOrder(std::vector<RecordRange> runs, std::uint64_t n_slots,
                         std::uint64_t key)
    : runs_(std::move(runs)),
      ends_(ends_of(runs_)),
      n_slots_(std::max<std::uint64_t>(1, std::min(n_slots, ends_.back()))),
      n_replacing_(ends_.back() - std::min(n_slots_, ends_.back())),
      draws_(n_slots_, key),
      last_(draws_.last(std::min(n_slots_, ends_.back()))) {}

WindowOrder::Drawn WindowOrder::draw(std::uint64_t position) const noexcept {
  if (position < n_replacing_) return {draws_.slot(position), position};
  return {last_(position - n_replacing_), n_replacing_};
}

// Fills in who was drawn last before `position`.
void WindowOrder::advance_to(std::uint64_t position) const {
  if (last_drawn_.empty()) last_drawn_.assign(n_slots_, 0);
  // Far ahead, going backwards until every slot was seen is shorter.
  const std::uint64_t n_backwards = 32 * n_slots_;
  if (position > reached_ && position - reached_ > n_backwards) {
    std::fill(last_drawn_.begin(), last_drawn_.end(), 0);
    std::uint64_t n_seen = 0;
    for (std::uint64_t at = position; at != 0 && n_seen < n_slots_; --at) {
      std::uint64_t& drawn = last_drawn_[draws_.slot(at - 1)];
      if (drawn != 0) continue;
      drawn = at;
      ++n_seen;
    }
    reached_ = position;
  }
  for (; reached_ < position; ++reached_) {
    last_drawn_[draws_.slot(reached_)] = reached_ + 1;
  }
}

// Which of the records, in the order of reading, is in that slot.
std::uint64_t WindowOrder::input_at(const Drawn& drawn) const {
  std::uint64_t at = drawn.before;
  if (at <= reached_ && last_drawn_[drawn.slot] <= at) {
    at = last_drawn_[drawn.slot];
  } else {
    while (at != 0 && draws_.slot(at - 1) != drawn.slot) --at;
  }
  return at == 0 ? drawn.slot : at - 1 + n_slots_;
}

std::uint64_t WindowOrder::record_of(std::uint64_t input) const {
  const auto end = std::upper_bound(ends_.begin() + 1, ends_.end(), input);
  const auto run = static_cast<std::size_t>(end - ends_.begin()) - 1;
  return runs_[run].first + (input - ends_[run]);
}

void WindowOrder::to_records(std::span<std::uint64_t> positions) const {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t& position : positions) {
    const Drawn drawn = draw(position);
    advance_to(drawn.before);
    position = record_of(input_at(drawn));
  }
}

}  // namespace fastrec
