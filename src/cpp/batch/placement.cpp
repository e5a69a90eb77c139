#include "batch/placement.h"

#include <algorithm>
#include <utility>

namespace fastrec {
namespace {

std::size_t aligned(std::size_t size) {
  return (size + Block::kAlignment - 1) / Block::kAlignment * Block::kAlignment;
}

}  // namespace

void Placement::announce(std::size_t column, std::size_t size) {
  if (shares_.empty() || shares_.back().column != column) shares_.push_back({column});
  shares_.back().n_bytes += size;
  shares_.back().n_aligned += aligned(size);
}

Array Placement::cut(std::size_t column, std::size_t size) {
  if (blocks_.empty()) divide();
  while (shares_[current_].column != column) ++current_;
  SharedBlock& shared = blocks_[shares_[current_].block];
  if (!shared.block) {
    shared.block = pool_->take(std::max<std::size_t>(shared.n_aligned, 1));
    n_bytes_ += shared.block->size();
  }
  Array array{shared.block, shared.block->data() + shared.n_used};
  shared.n_used += aligned(size);
  return array;
}

void Placement::divide() {
  by_size_.clear();
  for (Share& share : shares_) by_size_.push_back(&share);
  const auto is_smaller = [](const Share* a, const Share* b) {
    return std::pair(a->n_bytes, a->column) < std::pair(b->n_bytes, b->column);
  };
  if (!std::is_sorted(by_size_.begin(), by_size_.end(), is_smaller)) {
    std::sort(by_size_.begin(), by_size_.end(), is_smaller);
  }
  std::size_t size_max = 0;  // of the last block
  for (Share* share : by_size_) {
    if (blocks_.empty() ||
        pool_->block_size(blocks_.back().n_aligned + share->n_aligned) > size_max) {
      blocks_.emplace_back();
      size_max = 2 * share->n_bytes + BlockPool::kPageBytes;
    }
    share->block = blocks_.size() - 1;
    blocks_.back().n_aligned += share->n_aligned;
  }
}

void Placement::clear() noexcept {
  shares_.clear();
  blocks_.clear();
  current_ = 0;
  n_bytes_ = 0;
}

}  // namespace fastrec
