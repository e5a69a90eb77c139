// Window: a reservoir of records, as tf.data's shuffle(n) has it.
//
//   records -> [ slot 0 | slot 1 | ... | slot n-1 ] -> positions
//
// The first n records fill the slots. Position p delivers the slot that is drawn for
// it, and record n + p fills that slot. At the end, the slots are delivered in a
// permuted order. A draw depends only on the key and the position, so position p is
// arithmetic: it delivers the record that the last draw of its slot before p put there.
//
// A stream keeps the records in slots (claims.h); files with an index compute the
// record (WindowOrder). Both deliver the same.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "loader/order.h"
#include "loader/permutation.h"

namespace fastrec {

// What is drawn in one epoch.
class WindowDraws {
 public:
  // `key` as of key_of(); `n_slots` is at least 1.
  WindowDraws(std::uint64_t n_slots, std::uint64_t key);

  std::uint64_t n_slots() const noexcept { return n_slots_; }

  // The slot that `position` draws from, as long as a record comes after it.
  std::uint64_t slot(std::uint64_t position) const noexcept;

  // The order in which the slots are emptied at last, if `n_left` of them are filled.
  Permutation last(std::uint64_t n_left) const;

 private:
  std::uint64_t n_slots_;
  std::uint64_t key_;
};

// A window over records that are read run by run, such as file by file.
class WindowOrder final : public Order {
 public:
  WindowOrder(std::vector<RecordRange> runs, std::uint64_t n_slots, std::uint64_t key);
  std::uint64_t size() const noexcept override { return ends_.back(); }

  // O(1) for a position that is near those asked for before, which is what an epoch
  // does; O(n log n) of the slots for any other.
  void to_records(std::span<std::uint64_t> positions) const override;

 private:
  struct Drawn {
    std::uint64_t slot;
    std::uint64_t before;  // the position up to which draws count
  };

  Drawn draw(std::uint64_t position) const noexcept;
  void advance_to(std::uint64_t position) const;
  std::uint64_t input_at(const Drawn& drawn) const;
  std::uint64_t record_of(std::uint64_t input) const;

  std::vector<RecordRange> runs_;
  std::vector<std::uint64_t> ends_;  // of the runs, in the order of reading; 0 first
  std::uint64_t n_slots_;
  std::uint64_t n_replacing_;  // positions at which a record takes the slot
  WindowDraws draws_;
  Permutation last_;

  // Who was drawn last, so that it need not be searched for: of each slot the position
  // after its last draw before `reached_`, 0 if there was none.
  mutable std::mutex mutex_;
  mutable std::vector<std::uint64_t> last_drawn_;
  mutable std::uint64_t reached_ = 0;
};

}  // namespace fastrec
