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
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fastrec {

class Block {
 public:
  static constexpr std::size_t kAlignment = 64;

  // Throws std::bad_alloc.
  explicit Block(std::size_t size);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::uint8_t* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  std::uint8_t* data_;
  std::size_t size_;
};

class BlockPool {
 public:
  explicit BlockPool(std::size_t idle_bytes_max);

  // A block of at least `size` bytes, of unspecified content. Any thread may take one
  // and any thread may drop it. Throws std::bad_alloc.
  std::shared_ptr<Block> take(std::size_t size);

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
