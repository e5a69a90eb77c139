// Slab: recycled blocks of memory for the columns of batches.
//
// Fresh memory costs a page fault for every 4 KiB, many times the cost of filling it.
// So an unreferenced block returns to its pool, and a later batch reuses it with its
// pages still mapped.
//
// Invariants
//   * A block returns only when its last owner releases it: never while an array views
//     it.
//   * Idle blocks hold at most `idle_bytes_max`; the least recently used are freed
//     first.
//   * A block may outlive its pool.
//   * In a forked process, a pool of the parent still allocates but keeps no blocks.
//
// Special memory (page-locked, for copies to a device) comes from an allocator that is
// slow and may be called on some threads only. No thread waits for it: if the pool has
// no block, take() returns one of system memory, and the next replenish() allocates a
// special block for later batches. After the first batches, all blocks are special.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace fastrec {

// Memory that `owner` keeps alive, aligned to Block::kAlignment.
struct ForeignMemory {
  std::uint8_t* data = nullptr;
  std::shared_ptr<void> owner;
};

class Block {
 public:
  static constexpr std::size_t kAlignment = 64;

  // Throws std::bad_alloc.
  explicit Block(std::size_t size);
  Block(ForeignMemory memory, std::size_t size);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::uint8_t* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

  // The owner of foreign memory; null for system memory.
  const std::shared_ptr<void>& owner() const noexcept { return owner_; }

 private:
  std::uint8_t* data_;
  std::size_t size_;
  std::shared_ptr<void> owner_;
};

// Typed memory inside a block, which it keeps alive.
struct Array {
  std::shared_ptr<Block> block;
  std::uint8_t* data = nullptr;
};

// Returns special memory of at least the requested size.
using Allocator = std::function<ForeignMemory(std::size_t)>;

class BlockPool {
 public:
  // The smallest block.
  static constexpr std::size_t kPageBytes = std::size_t{4} << 10;

  explicit BlockPool(std::size_t idle_bytes_max);

  // Prefers blocks from `allocate`. Unless `recycles`, each block is used once and then
  // returned to the allocator.
  BlockPool(std::size_t idle_bytes_max, Allocator allocate, bool recycles);

  // Returns a block of at least `size` bytes with unspecified content. Any thread may
  // call this, and any thread may release the block. Throws std::bad_alloc.
  std::shared_ptr<Block> take(std::size_t size);

  // The size of the block that take(size) returns: at most a quarter more than `size`,
  // or less than twice as much with an allocator; at least kPageBytes.
  std::size_t block_size(std::size_t size) const noexcept;

  // Allocates the special blocks that take() missed since the last call, and returns
  // retired ones to the allocator: nothing else calls it. Throws what it throws.
  void replenish();

  struct Stats {
    std::size_t n_allocated = 0;  // blocks allocated from the system so far
    std::size_t n_idle = 0;
    std::size_t idle_bytes = 0;
  };
  Stats stats() const;

 private:
  class PoolState;
  std::shared_ptr<PoolState> state_;
};

}  // namespace fastrec
