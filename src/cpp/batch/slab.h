// Slab: blocks of memory for the columns of batches, used again and again.
//
// Filling fresh memory costs a page fault for every 4 KiB, many times what filling it
// costs. So a block that nobody uses any more goes back to its pool, and comes out of
// it for a later batch, its pages still in place.
//
// Invariants
//   * A block returns only when its last owner lets go: never while an array views it.
//   * Idle blocks take at most `idle_bytes_max`; those that were idle longest go first.
//   * A block outlives its pool if it must.
//   * In a forked process, a pool of the parent works and keeps nothing.
//
// Memory of a special kind (page-locked, for copies to a device) comes from an
// allocator, which is slow and bound to some threads. So nobody waits for it: who takes
// a block that is not there gets one of the system, and the next replenish() has the
// allocator make one for those to come. After the first batches all are special.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace fastrec {

// Memory from elsewhere, aligned as a Block is, which lasts as long as its owner.
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

  // Whose memory it is; null where it is the system's.
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

// What makes blocks of a special kind: memory of at least as many bytes.
using Allocator = std::function<ForeignMemory(std::size_t)>;

class BlockPool {
 public:
  // The smallest block.
  static constexpr std::size_t kPageBytes = std::size_t{4} << 10;

  explicit BlockPool(std::size_t idle_bytes_max);

  // Blocks of `allocate`, as far as it keeps up. Unless `recycles`, each is used once
  // and goes back to where it is from.
  BlockPool(std::size_t idle_bytes_max, Allocator allocate, bool recycles);

  // A block of at least `size` bytes, of unspecified content. Any thread may take one
  // and any thread may drop it. Throws std::bad_alloc.
  std::shared_ptr<Block> take(std::size_t size);

  // The size of the block that take(size) returns: at most a quarter more than `size`,
  // or less than twice as much with an allocator; at least kPageBytes.
  std::size_t block_size(std::size_t size) const noexcept;

  // Calls the allocator for the blocks that were not there since the last time, and
  // gives memory back to it: nobody else does. Throws what the allocator throws.
  void replenish();

  struct Stats {
    std::size_t n_allocated = 0;  // blocks that came from the system, since the start
    std::size_t n_idle = 0;
    std::size_t idle_bytes = 0;
  };
  Stats stats() const;

 private:
  class Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace fastrec
