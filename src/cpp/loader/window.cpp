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

Permutation WindowDraws::drain_order(std::uint64_t n_left) const {
  return {n_left, mix64(key_ ^ kGolden)};
}

WindowOrder::WindowOrder(std::vector<RecordRange> runs, std::uint64_t n_slots,
                         std::uint64_t key)
    : runs_(std::move(runs)),
      ends_(ends_of(runs_)),
      n_slots_(std::max<std::uint64_t>(1, std::min(n_slots, ends_.back()))),
      n_replacing_(ends_.back() - std::min(n_slots_, ends_.back())),
      draws_(n_slots_, key),
      drain_order_(draws_.drain_order(std::min(n_slots_, ends_.back()))) {}

WindowOrder::SlotDraw WindowOrder::draw_of(std::uint64_t position) const noexcept {
  if (position < n_replacing_) return {draws_.slot(position), position};
  return {drain_order_(position - n_replacing_), n_replacing_};
}

// Updates last_draws_ to the draws before `position`.
void WindowOrder::advance_to(std::uint64_t position) const {
  if (last_draws_.empty()) last_draws_.assign(n_slots_, 0);
  // After a long jump, scanning backwards until every slot was seen is faster.
  const std::uint64_t n_backwards = 32 * n_slots_;
  if (position > draws_end_ && position - draws_end_ > n_backwards) {
    std::fill(last_draws_.begin(), last_draws_.end(), 0);
    std::uint64_t n_seen = 0;
    for (std::uint64_t at = position; at != 0 && n_seen < n_slots_; --at) {
      std::uint64_t& draw = last_draws_[draws_.slot(at - 1)];
      if (draw != 0) continue;
      draw = at;
      ++n_seen;
    }
    draws_end_ = position;
  }
  for (; draws_end_ < position; ++draws_end_) {
    last_draws_[draws_.slot(draws_end_)] = draws_end_ + 1;
  }
}

// The record in a slot, as an index in reading order.
std::uint64_t WindowOrder::input_at(const SlotDraw& draw) const {
  std::uint64_t at = draw.before;
  if (at <= draws_end_ && last_draws_[draw.slot] <= at) {
    at = last_draws_[draw.slot];
  } else {
    while (at != 0 && draws_.slot(at - 1) != draw.slot) --at;
  }
  return at == 0 ? draw.slot : at - 1 + n_slots_;
}

std::uint64_t WindowOrder::record_of(std::uint64_t input) const {
  const auto end = std::upper_bound(ends_.begin() + 1, ends_.end(), input);
  const auto run = static_cast<std::size_t>(end - ends_.begin()) - 1;
  return runs_[run].first + (input - ends_[run]);
}

void WindowOrder::to_records(std::span<std::uint64_t> positions) const {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t& position : positions) {
    const SlotDraw draw = draw_of(position);
    advance_to(draw.before);
    position = record_of(input_at(draw));
  }
}

}  // namespace fastrec
