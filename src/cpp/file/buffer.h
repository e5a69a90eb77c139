// Buffer: private memory that grows and is used again.
//
// Its bytes have kSlackBytes of readable slack on both sides, so that a vector load
// which begins or ends inside them never leaves the allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"

namespace fastrec {

class Buffer {
 public:
  static constexpr std::size_t kSlackBytes = 128;

  // Room for `size` bytes. Growing does not keep what the buffer held.
  MutableBytes room(std::size_t size) {
    if (size > capacity_) {
      capacity_ = std::max(size, std::min(2 * capacity_, size + kMostSpareBytes));
      memory_ = std::make_unique<std::uint8_t[]>(capacity_ + 2 * kSlackBytes);
    }
    return {memory_.get() + kSlackBytes, size};
  }

  std::size_t capacity() const noexcept { return capacity_; }

 private:
  static constexpr std::size_t kMostSpareBytes = std::size_t{4} << 20;

  std::unique_ptr<std::uint8_t[]> memory_ =
      std::make_unique<std::uint8_t[]>(2 * kSlackBytes);
  std::size_t capacity_ = 0;
};

}  // namespace fastrec
