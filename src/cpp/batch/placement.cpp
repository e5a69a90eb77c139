#include "batch/placement.h"

#include <algorithm>
#include <utility>

namespace fastrec {
namespace {

std::size_t aligned(std::size_t size) {
  return (size + Block::kAlignment - 1) / Block::kAlignment * Block::kAlignment;
}

}  // namespace

void Placement::clear() noexcept {
  shares_.clear();
  places_.clear();
  block_bytes_.clear();
}

void Placement::add(std::size_t column, std::size_t size) {
  if (shares_.empty() || shares_.back().column != column) {
    shares_.emplace_back().column = column;
  }
  Share& share = shares_.back();
  share.n_bytes += size;
  share.n_aligned += aligned(size);
  ++share.n_arrays;
  places_.push_back({.offset = aligned(size)});
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
    if (block_bytes_.empty() ||
        pool_->block_size(block_bytes_.back() + share->n_aligned) > size_max) {
      block_bytes_.push_back(0);
      size_max = 2 * share->n_bytes + BlockPool::kPageBytes;
    }
    share->begin = {static_cast<std::uint32_t>(block_bytes_.size() - 1),
                    block_bytes_.back()};
    block_bytes_.back() += share->n_aligned;
  }
  auto place = places_.begin();
  for (const Share& share : shares_) {
    Place next = share.begin;
    for (std::size_t i = 0; i < share.n_arrays; ++i) {
      const std::size_t size = std::exchange(*place++, next).offset;
      next.offset += size;
    }
  }
}

}  // namespace fastrec
