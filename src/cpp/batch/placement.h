// Placement: array sizes, by column -> offsets in blocks that columns may share.
//
// Arrays are added column by column. divide() then assigns each a place: the arrays of
// one column lie in one block. A column here is any group of arrays that callers keep
// together. The result depends on the sizes only, so batches of the same sizes share
// one Placement.
//
// Invariant
//   * Keeping a column of b bytes keeps blocks of at most 2 * b + kPageBytes alive.
//
// Proof. A block that columns share takes at most 2 * b_min + kPageBytes, where b_min
// is the size of the smallest of them, and b_min <= b. The block of a column that
// is alone in its block takes block_size(a), where a <= b + 189, since a column has at
// most three arrays and each is aligned to 64 bytes. A block of the system takes
// kPageBytes, or at most a quarter more than a; a block of an allocator takes less than
// 2 * a, or kPageBytes. All of these are at most 2 * b + kPageBytes.
//
// Columns are added to blocks from the smallest to the largest, so the first column of
// a block sets the limit of the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "batch/slab.h"

namespace fastrec {

class Placement {
 public:
  struct Place {
    std::uint32_t block = 0;  // index in block_bytes()
    std::size_t offset = 0;
  };

  explicit Placement(std::shared_ptr<const BlockPool> pool) : pool_(std::move(pool)) {}

  // Removes all arrays.
  void clear() noexcept;

  // Adds an array of `size` bytes. Columns come in ascending order.
  void add(std::size_t column, std::size_t size);

  // Assigns the places of all arrays.
  void divide();

  // The place of each array, in the order of add().
  std::span<const Place> places() const noexcept { return places_; }

  // The sizes of the blocks to allocate.
  std::span<const std::size_t> block_bytes() const noexcept { return block_bytes_; }

 private:
  struct Share {  // the part of a block that one column uses
    std::size_t column = 0;
    std::size_t n_bytes = 0;
    std::size_t n_aligned = 0;
    std::size_t n_arrays = 0;
    Place begin;
  };

  std::shared_ptr<const BlockPool> pool_;
  std::vector<Share> shares_;  // by column
  std::vector<Share*> by_size_;
  std::vector<Place> places_;  // before divide(), the offset is the aligned size
  std::vector<std::size_t> block_bytes_;
};

}  // namespace fastrec
