// Buffer: private memory that grows and is reused, with kSlackBytes of readable slack
// on both sides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"

namespace fastrec {

class Buffer {
 public:
  static constexpr std::size_t kSlackBytes = BytesWithSlack::kSlackBytes;

  // Room for `size` bytes. Growing does not keep what the buffer held.
  MutableBytes room(std::size_t size) {
    if (size > capacity_) {
      const std::size_t capacity =
          std::max(size, std::min(2 * capacity_, size + kMostSpareBytes));
      memory_ = allocate(capacity);
      capacity_ = capacity;  // not before: allocate() may throw
    }
    return {memory_.get() + kSlackBytes, size};
  }

 private:
  static constexpr std::size_t kMostSpareBytes = std::size_t{4} << 20;

  // Only the slack is initialized: the rest is written before it is read.
  static std::unique_ptr<std::uint8_t[]> allocate(std::size_t capacity) {
    auto memory =
        std::make_unique_for_overwrite<std::uint8_t[]>(capacity + 2 * kSlackBytes);
    std::fill_n(memory.get(), kSlackBytes, std::uint8_t{0});
    std::fill_n(memory.get() + kSlackBytes + capacity, kSlackBytes, std::uint8_t{0});
    return memory;
  }

  std::unique_ptr<std::uint8_t[]> memory_ = allocate(0);
  std::size_t capacity_ = 0;
};

}  // namespace fastrec
