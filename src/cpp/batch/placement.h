// Placement: sizes of the arrays of columns -> arrays in blocks that columns may share.
//
// The sizes of all arrays are announced first, column by column. Then the arrays are
// cut in the same order. The arrays of one column lie in one block. A column here is
// any group of arrays that callers keep together.
//
// Invariant
//   * Keeping a column of b bytes keeps blocks of at most 2 * b + kPageBytes alive.
//
// Proof. A block that columns share takes at most 2 * b_min + kPageBytes, where b_min
// is the size of the smallest of them, and b_min <= b. The block of a column that
// shares with no other takes block_size(a), where a <= b + 189, since a column has at
// most three arrays and each is aligned to 64 bytes. A block of the system takes
// kPageBytes, or at most a quarter more than a; a block of an allocator takes less than
// 2 * a, or kPageBytes. All of these are at most 2 * b + kPageBytes.
//
// Columns are added to blocks from the smallest to the largest, so the first column of
// a block sets the limit of the block.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "batch/slab.h"

namespace fastrec {

class Placement {
 public:
  explicit Placement(std::shared_ptr<BlockPool> pool) : pool_(std::move(pool)) {}

  // Announces an array of `size` bytes. Columns come in ascending order.
  void announce(std::size_t column, std::size_t size);

  // Returns memory for the next array. Throws std::bad_alloc.
  Array cut(std::size_t column, std::size_t size);

  // Bytes of the blocks that arrays were cut from.
  std::size_t n_bytes() const noexcept { return n_bytes_; }

  // Forgets all arrays and lets go of their blocks.
  void clear() noexcept;

 private:
  struct Share {  // of a block, by a column
    std::size_t column = 0;
    std::size_t n_bytes = 0;
    std::size_t n_aligned = 0;
    std::size_t block = 0;
  };
  struct SharedBlock {
    std::size_t n_aligned = 0;
    std::size_t n_used = 0;
    std::shared_ptr<Block> block;
  };

  void divide();

  std::shared_ptr<BlockPool> pool_;
  std::vector<Share> shares_;  // by column
  std::vector<Share*> by_size_;
  std::vector<SharedBlock> blocks_;
  std::size_t current_ = 0;  // the share of the last cut
  std::size_t n_bytes_ = 0;
};

}  // namespace fastrec
