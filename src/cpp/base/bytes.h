// Bytes: a non-owning view of memory, and unaligned little-endian loads and stores.
//
// Files are little-endian, and so are all supported machines.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace fastrec {

static_assert(std::endian::native == std::endian::little);

using Bytes = std::span<const std::uint8_t>;
using MutableBytes = std::span<std::uint8_t>;

// A span with kSlackBytes of readable padding on both sides, so that SIMD loads may
// over-read. Constructing one is the promise.
class BytesWithSlack {
 public:
  static constexpr std::size_t kSlackBytes = 128;

  explicit BytesWithSlack(Bytes bytes) noexcept : bytes_(bytes) {}

  Bytes bytes() const noexcept { return bytes_; }

 private:
  Bytes bytes_;
};

// Reads sizeof(UInt) bytes.
template <typename UInt>
UInt load_le(const std::uint8_t* bytes) noexcept {
  UInt value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Writes sizeof(UInt) bytes.
template <typename UInt>
void store_le(std::uint8_t* bytes, UInt value) noexcept {
  std::memcpy(bytes, &value, sizeof value);
}

// Copies a few bytes in whole blocks: reads and writes up to kCopyBlockBytes - 1 bytes
// past the end.
inline constexpr std::size_t kCopyBlockBytes = 16;
inline void copy_blocks(const std::uint8_t* source, std::size_t n_bytes,
                        std::uint8_t* target) noexcept {
  for (std::size_t i = 0; i < n_bytes; i += kCopyBlockBytes) {
    std::memcpy(target + i, source + i, kCopyBlockBytes);
  }
}

// Compares short byte strings, such as names, for which a call to memcmp costs more
// than the comparison.
inline bool same_bytes(const std::uint8_t* a, const std::uint8_t* b,
                       std::size_t size) noexcept {
  const auto differ = [&]<typename UInt>(UInt) {
    // The first and the last word; they overlap if `size` is not a multiple of a word.
    const std::size_t last = size - sizeof(UInt);
    return (load_le<UInt>(a) ^ load_le<UInt>(b)) |
           (load_le<UInt>(a + last) ^ load_le<UInt>(b + last));
  };
  if (size > 16) return std::memcmp(a, b, size) == 0;
  if (size >= 8) return differ(std::uint64_t{}) == 0;
  if (size >= 4) return differ(std::uint32_t{}) == 0;
  if (size >= 2) return differ(std::uint16_t{}) == 0;
  return size == 0 || *a == *b;
}

inline Bytes as_bytes(std::string_view text) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

inline std::string_view as_text(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace fastrec
