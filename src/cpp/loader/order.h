// Order: position in an epoch -> record.
//
// A position is a place in the sequence that an epoch delivers. An order is arithmetic:
// any thread may look up any position, in constant memory. The order of a seed and
// epoch never changes (docs/determinism.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "loader/permutation.h"

namespace fastrec {

struct RecordRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

class Order {
 public:
  virtual ~Order() = default;

  // The number of positions.
  virtual std::uint64_t size() const noexcept = 0;

  // Replaces each position, all below size(), by its record.
  virtual void to_records(std::span<std::uint64_t> positions) const = 0;

  // Positions are assigned to this many lanes, round-robin. A lane reads its own part
  // of the files, so one rank should read all of it.
  virtual std::uint64_t n_lanes() const noexcept { return 1; }

  // Appends ranges of records that are read at or soon after `positions`, and that should
  // be prefetched as a whole.
  virtual void upcoming(std::span<const std::uint64_t> positions,
                        std::vector<RecordRange>* ranges) const;
};

// File order.
class SequentialOrder final : public Order {
 public:
  explicit SequentialOrder(std::uint64_t n_records) : n_records_(n_records) {}
  std::uint64_t size() const noexcept override { return n_records_; }
  void to_records(std::span<std::uint64_t>) const override {}

 private:
  std::uint64_t n_records_;
};

// An explicit list of records, of any length, possibly with repetitions.
class ListedOrder final : public Order {
 public:
  explicit ListedOrder(std::vector<std::uint64_t> records)
      : records_(std::move(records)) {}
  std::uint64_t size() const noexcept override { return records_.size(); }
  void to_records(std::span<std::uint64_t> positions) const override;

 private:
  std::vector<std::uint64_t> records_;
};

// One permutation of all records.
class ShuffledOrder final : public Order {
 public:
  ShuffledOrder(std::uint64_t n_records, std::uint64_t key)
      : permutation_(n_records, key) {}
  std::uint64_t size() const noexcept override { return permutation_.size(); }
  void to_records(std::span<std::uint64_t> positions) const override {
    permutation_.apply(positions);
  }

 private:
  Permutation permutation_;
};

// Blocks of consecutive records, permuted and assigned to lanes:
//
//   lane 0   | block 17 | block  4 | ...       position -> round, row, lane:
//   lane 1   | block  8 | block 30 | ...       lanes vary fastest, rounds slowest;
//   ...                                        the rows of a block are permuted, too
//              round 0    round 1
//
// The number of blocks is a multiple of the lanes, so all lanes have one length. Blocks
// have `n_records / n_blocks` records, rounded down or up. To keep position -> record
// arithmetic, every block has the larger number of cells, and surplus cells map to
// numbers above all records. A position that hits one maps that number again ("cycle
// walking") until it is a record.
class BlockOrder final : public Order {
 public:
  // `block_records` is the approximate number of records in a block.
  BlockOrder(std::uint64_t n_records, std::uint64_t key, std::uint64_t block_records,
             std::uint64_t n_lanes);
  std::uint64_t size() const noexcept override { return n_records_; }
  void to_records(std::span<std::uint64_t> positions) const override;
  std::uint64_t n_lanes() const noexcept override { return n_lanes_; }
  // The first block of each lane. While the lanes read the first half of their blocks,
  // the next block of one lane after the other, so that a store is never idle. With a
  // block, the record that its surplus cell maps to.
  void upcoming(std::span<const std::uint64_t> positions,
                std::vector<RecordRange>* ranges) const override;

 private:
  // A block, and the rotations of its rows.
  struct RotatedBlock {
    std::uint64_t index = 0;  // among the permuted blocks
    std::uint64_t block = 0;
    RecordRange records;
    std::uint64_t rotation_before = 0;
    std::uint64_t rotation_after = 0;
  };

  std::uint64_t n_blocks() const noexcept { return n_lanes_ * n_rounds_; }
  std::uint64_t begin_of(std::uint64_t block) const noexcept;
  RecordRange records_of(std::uint64_t block) const noexcept;
  RotatedBlock rotated_block(std::uint64_t index) const noexcept;
  std::uint64_t mapped(std::uint64_t position, RotatedBlock* current) const;

  std::uint64_t n_records_;
  std::uint64_t n_lanes_;
  std::uint64_t n_rounds_;
  std::uint64_t n_rows_;         // cells of a block
  std::uint64_t shorter_rows_;   // records of a block, rounded down
  std::uint64_t n_long_blocks_;  // blocks with one more record, which come first
  std::uint64_t rotation_key_;
  Permutation blocks_;
  Permutation rows_;
};

// How to order each epoch of a dataset.
struct Shuffle {
  enum class Kind : std::uint8_t { kSequential, kShuffled, kBlocks } kind;
  std::uint64_t block_records = 1;  // kBlocks
  std::uint64_t n_lanes = 1;        // kBlocks
};

// `stream` selects an independent order of the same seed and epoch.
std::shared_ptr<Order> make_order(const Shuffle& shuffle, std::uint64_t n_records,
                                  std::uint64_t seed, std::uint64_t epoch,
                                  std::uint64_t stream = 0);

}  // namespace fastrec
