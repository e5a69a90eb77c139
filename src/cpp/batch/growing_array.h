// GrowingArray: an append-only byte buffer in a block of a pool.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "base/bytes.h"
#include "batch/slab.h"

namespace fastrec {

class GrowingArray {
 public:
  // Smaller arrays are cheaper to copy than to keep in a separate block.
  static constexpr std::size_t kOwnBlockBytes = std::size_t{256} << 10;

  explicit GrowingArray(std::shared_ptr<BlockPool> pool) : pool_(std::move(pool)) {}

  // Starts new contents of about `n_pieces` pieces, together at most about
  // `n_bytes_max` bytes.
  void begin(std::size_t n_pieces, std::size_t n_bytes_max) noexcept {
    size_ = 0;
    n_pieces_ = n_pieces;
    n_bytes_max_ = n_bytes_max;
  }

  std::size_t size() const noexcept { return size_; }
  std::uint8_t* data() const noexcept { return data_; }

  // Appends `n_bytes` uninitialized bytes and returns a pointer to them. Invalidates
  // earlier pointers.
  std::uint8_t* extend(std::size_t n_bytes) {
    std::uint8_t* begin = reserve(n_bytes);
    size_ += n_bytes;
    return begin;
  }

  // Returns room for `n_bytes` more. advance() then appends the bytes that were
  // written.
  std::uint8_t* reserve(std::size_t n_bytes) {
    if (n_bytes > capacity_ - size_ || data_ == nullptr) grow(n_bytes);
    return data_ + size_;
  }
  void advance(std::size_t n_bytes) noexcept { size_ += n_bytes; }

  void append(std::int64_t value) {
    std::memcpy(extend(sizeof value), &value, sizeof value);
  }

  // Appends `bytes`. May over-read up to `end`: short strings are copied in one block
  // of constant size.
  void append(Bytes bytes, const std::uint8_t* end) {
    constexpr std::size_t kShortBytes = 16;
    if (bytes.size() <= kShortBytes && capacity_ - size_ >= kShortBytes &&
        static_cast<std::size_t>(end - bytes.data()) >= kShortBytes) {
      std::memcpy(data_ + size_, bytes.data(), kShortBytes);
      size_ += bytes.size();
    } else if (!bytes.empty()) {
      std::memcpy(extend(bytes.size()), bytes.data(), bytes.size());
    }
  }

  // Removes the last `n_bytes`.
  void retract(std::size_t n_bytes) noexcept { size_ -= n_bytes; }

  // Removes all but the first `n_bytes`.
  void retract_to(std::size_t n_bytes) noexcept { size_ = n_bytes; }

  // Whether to release the block instead of copying its contents.
  bool fills_own_block() const noexcept {
    return size_ > kOwnBlockBytes && size_ >= capacity_ / 2;
  }

  // Returns the contents with their block. The array is then empty.
  Array release();

  // Copies the contents to `target`. The array is then empty.
  void move_to(std::uint8_t* target);

  // Removes the contents, and releases a block that is much larger than they were.
  void reset();

 private:
  void grow(std::size_t n_bytes);
  std::shared_ptr<Block> release_block();

  std::shared_ptr<BlockPool> pool_;
  std::shared_ptr<Block> block_;
  std::uint8_t* data_ = nullptr;  // of the block
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::size_t last_size_ = 0;  // of the previous contents
  std::size_t n_pieces_ = 0;   // see begin()
  std::size_t n_bytes_max_ = 0;
};

// Run i of an array: from offset i to offset i + 1.
struct Run {
  std::size_t begin = 0;
  std::size_t size = 0;
};

inline Run run_of(const GrowingArray& offsets, std::size_t i) {
  std::int64_t bounds[2];
  std::memcpy(bounds, offsets.data() + i * sizeof(std::int64_t), sizeof bounds);
  return {static_cast<std::size_t>(bounds[0]),
          static_cast<std::size_t>(bounds[1] - bounds[0])};
}

// The size of the offsets of `n` runs, and the number of runs with these offsets.
constexpr std::size_t offsets_bytes(std::size_t n) {
  return (n + 1) * sizeof(std::int64_t);
}
inline std::size_t n_runs(const GrowingArray& offsets) {
  return offsets.size() / sizeof(std::int64_t) - 1;
}

}  // namespace fastrec
