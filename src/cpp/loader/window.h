// Window: the shuffle buffer of tf.data's shuffle(n), with arithmetic draws.
//
//   records -> [ slot 0 | slot 1 | ... | slot n-1 ] -> positions
//
// The first n records fill the slots. Position p draws a slot and delivers its record;
// record n + p refills the slot. At the end, the slots drain in a permuted order. A
// draw depends only on the key and the position. So the record of position p is the one
// that the previous draw of its slot stored there.
//
// Streams keep the records in slots (claims.h). Indexed files compute the record
// (WindowOrder). Both deliver the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "loader/order.h"
#include "loader/permutation.h"

namespace fastrec {

// The draws of one epoch.
class WindowDraws {
 public:
  // `key` comes from key_of(); `n_slots` is at least 1.
  WindowDraws(std::uint64_t n_slots, std::uint64_t key);

  std::uint64_t n_slots() const noexcept { return n_slots_; }

  // The slot that `position` draws, while records remain to refill it.
  std::uint64_t slot(std::uint64_t position) const noexcept;

  // The order in which the last `n_left` filled slots drain.
  Permutation drain_order(std::uint64_t n_left) const;

 private:
  std::uint64_t n_slots_;
  std::uint64_t key_;
};

// A window over ranges of records that are read in order, such as the files.
class WindowOrder final : public Order {
 public:
  WindowOrder(std::vector<RecordRange> runs, std::uint64_t n_slots, std::uint64_t key);
  std::uint64_t size() const noexcept override { return ends_.back(); }

  // O(1) for positions near the previous ones, as in an epoch. O(n log n) in the number
  // of slots after a jump.
  void to_records(std::span<std::uint64_t> positions) const override;

 private:
  struct SlotDraw {
    std::uint64_t slot;
    std::uint64_t before;  // only draws before this position count
  };

  SlotDraw draw_of(std::uint64_t position) const noexcept;
  void advance_to(std::uint64_t position) const;
  std::uint64_t input_at(const SlotDraw& draw) const;
  std::uint64_t record_of(std::uint64_t input) const;

  std::vector<RecordRange> runs_;
  std::vector<std::uint64_t> ends_;  // 0, and the end of each run in reading order
  std::uint64_t n_slots_;
  std::uint64_t n_replacing_;  // positions whose slot is refilled
  WindowDraws draws_;
  Permutation drain_order_;

  // For each slot, the position after its last draw before `draws_end_`; 0 if none.
  // Saves searching for that draw.
  mutable std::mutex mutex_;
  mutable std::vector<std::uint64_t> last_draws_;
  mutable std::uint64_t draws_end_ = 0;
};

}  // namespace fastrec
