#include "batch/slab.h"

#include <algorithm>
#include <bit>
#include <list>
#include <mutex>
#include <new>
#include <utility>

#include "base/process.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace fastrec {
namespace {

// From this size on, a block lies on huge pages where the system has them.
constexpr std::size_t kHugeBlockBytes = std::size_t{4} << 20;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kLeastBlockBytes = std::size_t{4} << 10;

std::size_t alignment_of(std::size_t size) {
  return size >= kHugeBlockBytes ? kHugePageBytes : Block::kAlignment;
}

// Sizes come in classes, four to a power of two, so that batches of nearly one size
// share blocks, and a quarter of a block is the most that is wasted.
std::size_t class_of(std::size_t size) {
  if (size <= kLeastBlockBytes) return kLeastBlockBytes;
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

Block::~Block() { ::operator delete(data_, std::align_val_t{alignment_of(size_)}); }

// Where idle blocks wait. Blocks that are in use keep it alive, to come back to it.
class BlockPool::Shelf : public std::enable_shared_from_this<Shelf> {
 public:
  explicit Shelf(std::size_t idle_bytes_max) : idle_bytes_max_(idle_bytes_max) {}

  std::shared_ptr<Block> take(std::size_t size) {
    // A fork may have copied the mutex while a thread held it.
    const bool is_forked = process_id() != process_id_;
    std::unique_ptr<Block> block = is_forked ? nullptr : find(size);
    if (!block) block = std::make_unique<Block>(size);
    return {block.release(), [shelf = shared_from_this()](Block* returned) {
              shelf->put(std::unique_ptr<Block>(returned));
            }};
  }

  Stats stats() const {
    const std::lock_guard lock(mutex_);
    return {n_allocated_, idle_.size(), idle_bytes_};
  }

 private:
  std::unique_ptr<Block> find(std::size_t size) {
    const std::lock_guard lock(mutex_);
    // The newest first: its pages are the likeliest to be in a cache.
    const auto found = std::find_if(idle_.rbegin(), idle_.rend(),
                                    [&](const auto& b) { return b->size() == size; });
    if (found == idle_.rend()) {
      ++n_allocated_;
      return nullptr;
    }
    std::unique_ptr<Block> block = std::move(*found);
    idle_.erase(std::next(found).base());
    idle_bytes_ -= size;
    return block;
  }

  void put(std::unique_ptr<Block> block) {
    if (process_id() != process_id_) return;
    std::list<std::unique_ptr<Block>> kept, dropped;  // freed after the lock is
    const std::size_t size = block->size();
    try {
      kept.push_back(std::move(block));
    } catch (const std::bad_alloc&) {
      return;  // memory is short: a good time to give some back
    }
    const std::lock_guard lock(mutex_);
    idle_bytes_ += size;
    idle_.splice(idle_.end(), kept);
    while (idle_bytes_ > idle_bytes_max_) {
      idle_bytes_ -= idle_.front()->size();
      dropped.splice(dropped.end(), idle_, idle_.begin());
    }
  }

  const std::size_t idle_bytes_max_;
  const int process_id_ = process_id();
  mutable std::mutex mutex_;
  std::list<std::unique_ptr<Block>> idle_;  // the longest idle first
  std::size_t idle_bytes_ = 0;
  std::size_t n_allocated_ = 0;
};

BlockPool::BlockPool(std::size_t idle_bytes_max)
    : shelf_(std::make_shared<Shelf>(idle_bytes_max)) {}

std::shared_ptr<Block> BlockPool::take(std::size_t size) {
  return shelf_->take(class_of(size));
}

BlockPool::Stats BlockPool::stats() const { return shelf_->stats(); }

}  // namespace fastrec
