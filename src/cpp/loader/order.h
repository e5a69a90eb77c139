// Order: position in an epoch -> record.
//
// Positions number what an epoch delivers, records what the data set has. An order is
// arithmetic: any thread may ask for any position, and no memory grows with the data.
// The order of a seed and epoch never changes (docs/determinism.md).
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

  // Positions are dealt to this many lanes in turn. Each lane reads a part of the files
  // by itself, so it is best left to one rank.
  virtual std::uint64_t n_lanes() const noexcept { return 1; }

  // Appends ranges of records that are going to be read from `positions` on, and that
  // are long enough to be announced as a whole.
  virtual void upcoming(std::span<const std::uint64_t> positions,
                        std::vector<RecordRange>* ranges) const;
};

// The order of the files.
class SequentialOrder final : public Order {
 public:
  explicit SequentialOrder(std::uint64_t n_records) : n_records_(n_records) {}
  std::uint64_t size() const noexcept override { return n_records_; }
  void to_records(std::span<std::uint64_t>) const override {}

 private:
  std::uint64_t n_records_;
};

// A list, of any length and with any repetitions.
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

// Blocks of consecutive records, permuted and dealt to lanes:
//
//   lane 0   | block 17 | block  4 | ...       position -> round, row, lane:
//   lane 1   | block  8 | block 30 | ...       lanes in turn, then rows, then rounds;
//   ...                                        the rows of a block are permuted, too
//              round 0    round 1
//
// The number of blocks is a multiple of the lanes, so all lanes are of one length, and
// blocks have `n_records / n_blocks` records, rounded down or up. To make position ->
// record arithmetic, all blocks count as if they had the larger number. The cells that
// do not exist get the numbers above all records: a position that meets one goes on
// from there ("cycle walking") until it finds a record.
class BlockOrder final : public Order {
 public:
  // `block_records`: about how many records a block has.
  BlockOrder(std::uint64_t n_records, std::uint64_t key, std::uint64_t block_records,
             std::uint64_t n_lanes);
  std::uint64_t size() const noexcept override { return n_records_; }
  void to_records(std::span<std::uint64_t> positions) const override;
  std::uint64_t n_lanes() const noexcept override { return n_lanes_; }
  // Of every block that is half read, the block after it in its lane; and the first
  // block of each lane.
  void upcoming(std::span<const std::uint64_t> positions,
                std::vector<RecordRange>* ranges) const override;

 private:
  // A block, and how its rows are turned.
  struct Opened {
    std::uint64_t draw = 0;  // which of the permuted blocks it is
    std::uint64_t block = 0;
    RecordRange records;
    std::uint64_t turn_before = 0;
    std::uint64_t turn_after = 0;
  };

  std::uint64_t n_blocks() const noexcept { return n_lanes_ * n_rounds_; }
  std::uint64_t begin_of(std::uint64_t block) const noexcept;
  RecordRange records_of(std::uint64_t block) const noexcept;
  Opened open(std::uint64_t draw) const noexcept;

  std::uint64_t n_records_;
  std::uint64_t n_lanes_;
  std::uint64_t n_rounds_;
  std::uint64_t n_rows_;         // of a block with its missing cell
  std::uint64_t shorter_rows_;   // of a block that lacks it
  std::uint64_t n_long_blocks_;  // those before the shorter ones
  std::uint64_t turns_key_;
  Permutation blocks_;
  Permutation rows_;
};

// How each epoch of some records is ordered.
struct Shuffle {
  enum class Kind : std::uint8_t { kSequential, kShuffled, kBlocks } kind;
  std::uint64_t block_records = 1;  // kBlocks
  std::uint64_t n_lanes = 1;        // kBlocks
};

// `stream` tells apart what shares a seed and an epoch.
std::shared_ptr<const Order> make_order(const Shuffle& shuffle, std::uint64_t n_records,
                                        std::uint64_t seed, std::uint64_t epoch,
                                        std::uint64_t stream = 0);

}  // namespace fastrec
