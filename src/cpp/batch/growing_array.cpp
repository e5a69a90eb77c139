#include "batch/growing_array.h"

#include <algorithm>
#include <utility>

namespace fastrec {

void GrowingArray::grow(std::size_t n_bytes) {
  // Batches have similar sizes: expect the last size and an eighth more.
  // Without a last size, expect all pieces to have the size of the first.
  const std::size_t expected = last_size_ != 0
                                   ? last_size_ + last_size_ / 8
                                   : std::min(n_bytes * n_pieces_, n_bytes_max_);
  auto larger = pool_->take(std::max({size_ + n_bytes, 2 * capacity_, expected}));
  if (size_ != 0) std::memcpy(larger->data(), data_, size_);
  block_ = std::move(larger);
  data_ = block_->data();
  capacity_ = block_->size();
}

std::shared_ptr<Block> GrowingArray::release_block() {
  data_ = nullptr;
  capacity_ = 0;
  return std::exchange(block_, nullptr);
}

Array GrowingArray::release() {
  std::uint8_t* data = data_;
  last_size_ = std::exchange(size_, 0);
  return {release_block(), data};
}

void GrowingArray::move_to(std::uint8_t* target) {
  if (size_ != 0) std::memcpy(target, data_, size_);
  reset();
}

void GrowingArray::reset() {
  // One huge batch must not keep its memory for the rest of the epoch.
  constexpr std::size_t kKeptBytes = std::size_t{1} << 20;
  last_size_ = std::exchange(size_, 0);
  if (capacity_ > std::max(kKeptBytes, 4 * last_size_)) release_block();
}

}  // namespace fastrec
