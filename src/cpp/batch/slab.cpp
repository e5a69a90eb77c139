#include "batch/slab.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/process.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace fastrec {
namespace {

// From this size on, a block asks for huge pages.
constexpr std::size_t kHugeBlockBytes = std::size_t{4} << 20;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::size_t alignment_of(std::size_t size) {
  return size >= kHugeBlockBytes ? kHugePageBytes : Block::kAlignment;
}

// Rounds up to one of four size classes per power of two, so that batches of similar
// sizes share blocks and waste at most a quarter of a block.
std::size_t class_of(std::size_t size) {
  if (size <= BlockPool::kPageBytes) return BlockPool::kPageBytes;
  const std::size_t step = std::bit_floor(size - 1) / 4;
  return (size + step - 1) / step * step;
}

}  // namespace

Block::Block(std::size_t size)
    : data_(static_cast<std::uint8_t*>(
          ::operator new(size, std::align_val_t{alignment_of(size)}))),
      size_(size) {
#if defined(__linux__)
  if (size >= kHugeBlockBytes) ::madvise(data_, size, MADV_HUGEPAGE);
#endif
}

Block::Block(ForeignMemory memory, std::size_t size)
    : data_(memory.data), size_(size), owner_(std::move(memory.owner)) {}

Block::~Block() {
  if (!owner_) ::operator delete(data_, std::align_val_t{alignment_of(size_)});
}

BlockPool::BlockPool(std::size_t idle_bytes_max, Allocator allocate, bool recycles)
    : idle_bytes_max_(idle_bytes_max),
      allocate_(std::move(allocate)),
      recycles_(recycles),
      process_id_(process_id()) {}

// Allocators of page-locked memory return powers of two for any size.
std::size_t BlockPool::block_size(std::size_t size) const noexcept {
  return allocate_ ? std::bit_ceil(class_of(size)) : class_of(size);
}

std::shared_ptr<Block> BlockPool::take(std::size_t size_min) {
  const std::size_t size = block_size(size_min);
  // A fork may have copied the mutex while a thread held it.
  std::unique_ptr<Block> block = is_forked() ? nullptr : find(size);
  if (!block) block = std::make_unique<Block>(size);
  return {block.release(), [weak_pool = weak_from_this()](Block* returned) {
            std::unique_ptr<Block> owned(returned);
            if (const auto pool = weak_pool.lock()) pool->take_back(std::move(owned));
          }};
}

void BlockPool::replenish() {
  if (!allocate_ || is_forked()) return;
  std::map<std::size_t, std::size_t> wanted;
  Blocks retired;
  {
    const std::lock_guard lock(mutex_);
    wanted.swap(wanted_);
    retired.swap(retired_);
  }
  retired.clear();
  std::size_t n_bytes = 0;
  for (const auto& [size, count] : wanted) {
    for (std::size_t i = 0; i < count; ++i) {
      n_bytes += size;
      if (n_bytes > idle_bytes_max_) return;
      put(std::make_unique<Block>(allocate_(size), size), &idle_);
    }
  }
}

BlockPool::Stats BlockPool::stats() const {
  const std::lock_guard lock(mutex_);
  return {n_allocated_, idle_.size(), idle_bytes_};
}

bool BlockPool::is_forked() const noexcept { return process_id() != process_id_; }

std::unique_ptr<Block> BlockPool::find(std::size_t size) {
  const std::lock_guard lock(mutex_);
  // Newest first: its pages are the most likely to be cached.
  const auto found = std::find_if(idle_.rbegin(), idle_.rend(),
                                  [&](const auto& b) { return b->size() == size; });
  const bool is_found = found != idle_.rend();
  if (allocate_ && !(is_found && recycles_)) ++wanted_[size];
  if (!is_found) {
    ++n_allocated_;
    return nullptr;
  }
  std::unique_ptr<Block> block = std::move(*found);
  idle_.erase(std::next(found).base());
  idle_bytes_ -= size;
  return block;
}

void BlockPool::take_back(std::unique_ptr<Block> block) {
  if (is_forked()) return;
  // System blocks are only substitutes for special ones.
  if (allocate_ && !block->owner()) return;
  put(std::move(block), recycles_ ? &idle_ : &retired_);
}

void BlockPool::put(std::unique_ptr<Block> block, Blocks* target) {
  Blocks added, dropped;  // freed after the lock is released
  const std::size_t size = block->size();
  try {
    added.push_back(std::move(block));
  } catch (const std::bad_alloc&) {
    return;  // memory is short: free the block
  }
  const std::lock_guard lock(mutex_);
  target->splice(target->end(), added);
  if (target != &idle_) return;
  idle_bytes_ += size;
  Blocks& rest = allocate_ ? retired_ : dropped;
  while (idle_bytes_ > idle_bytes_max_) {
    idle_bytes_ -= idle_.front()->size();
    rest.splice(rest.end(), idle_, idle_.begin());
  }
}

}  // namespace fastrec
