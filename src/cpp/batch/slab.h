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
#include <list>
#include <map>
#include <memory>
#include <mutex>

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

// Blocks in use refer to their pool, so a std::shared_ptr must own it.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // The smallest block.
  static constexpr std::size_t kPageBytes = std::size_t{4} << 10;

  // Prefers blocks from `allocate`, if any. Unless `recycles`, each of them is used once
  // and then returned to the allocator.
  explicit BlockPool(std::size_t idle_bytes_max, Allocator allocate = nullptr,
                     bool recycles = true);

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
  using Blocks = std::list<std::unique_ptr<Block>>;

  bool is_forked() const noexcept;
  std::unique_ptr<Block> find(std::size_t size);
  void take_back(std::unique_ptr<Block> block);
  void put(std::unique_ptr<Block> block, Blocks* target);

  const std::size_t idle_bytes_max_;
  const Allocator allocate_;
  const bool recycles_;
  const int process_id_;
  mutable std::mutex mutex_;
  Blocks idle_;  // least recently used first
  std::size_t idle_bytes_ = 0;
  std::size_t n_allocated_ = 0;
  std::map<std::size_t, std::size_t> wanted_;  // special blocks to allocate, by size
  Blocks retired_;                             // to return to the allocator
};

}  // namespace fastrec
