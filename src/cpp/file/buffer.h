// Buffer: reusable private memory with kSlackBytes of readable slack on both sides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/bytes.h"

namespace fastrec {

class Buffer {
 public:
  static constexpr std::size_t kSlackBytes = BytesWithSlack::kSlackBytes;

  // Returns room for `size` bytes. Their content is unspecified.
  MutableBytes room(std::size_t size) {
    owner_.reset();
    if (size > capacity_) {
      const std::size_t capacity =
          std::max(size, std::min(2 * capacity_, size + kMaxSpareBytes));
      memory_ = allocate(capacity);
      capacity_ = capacity;  // after allocate(), which may throw
    }
    return {memory_.get() + kSlackBytes, size};
  }

  // Keeps bytes elsewhere alive until the next use of the buffer.
  void hold(std::shared_ptr<const void> owner) noexcept { owner_ = std::move(owner); }

  // Frees the room if it has `capacity_max` bytes or more.
  void trim(std::size_t capacity_max) {
    if (capacity_ >= capacity_max) *this = Buffer();
  }

 private:
  static constexpr std::size_t kMaxSpareBytes = std::size_t{4} << 20;

  // Initializes only the slack; callers write the rest before they read it.
  static std::unique_ptr<std::uint8_t[]> allocate(std::size_t capacity) {
    auto memory =
        std::make_unique_for_overwrite<std::uint8_t[]>(capacity + 2 * kSlackBytes);
    std::fill_n(memory.get(), kSlackBytes, std::uint8_t{0});
    std::fill_n(memory.get() + kSlackBytes + capacity, kSlackBytes, std::uint8_t{0});
    return memory;
  }

  std::unique_ptr<std::uint8_t[]> memory_ = allocate(0);
  std::size_t capacity_ = 0;
  std::shared_ptr<const void> owner_;
};

}  // namespace fastrec
