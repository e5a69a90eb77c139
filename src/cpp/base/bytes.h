// Bytes: a view of memory that somebody else owns.
//
// Everything a file holds is little-endian; load_le and store_le are the only places
// that know how the host orders its bytes. Neither needs alignment.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace fastrec {

using Bytes = std::span<const std::uint8_t>;
using MutableBytes = std::span<std::uint8_t>;

// Bytes with more on both sides that can be read and mean nothing, so that a load of
// many bytes which begins or ends inside them never leaves the memory. Whoever makes
// one promises the slack.
class BytesWithSlack {
 public:
  static constexpr std::size_t kSlackBytes = 128;

  explicit BytesWithSlack(Bytes bytes) noexcept : bytes_(bytes) {}

  Bytes bytes() const noexcept { return bytes_; }

 private:
  Bytes bytes_;
};

template <typename UInt>
constexpr UInt byteswap(UInt value) noexcept {
  static_assert(std::is_unsigned_v<UInt>);
  UInt swapped = 0;
  for (std::size_t i = 0; i < sizeof(UInt); ++i) {
    swapped = static_cast<UInt>((swapped << 8) | ((value >> (8 * i)) & 0xff));
  }
  return swapped;
}

// Reads a little-endian integer from `bytes`, which must hold sizeof(UInt) of them.
template <typename UInt>
UInt load_le(const std::uint8_t* bytes) noexcept {
  UInt value;
  std::memcpy(&value, bytes, sizeof value);
  if constexpr (std::endian::native == std::endian::big) value = byteswap(value);
  return value;
}

// Writes `value` little-endian to `bytes`, which must have room for sizeof(UInt).
template <typename UInt>
void store_le(std::uint8_t* bytes, UInt value) noexcept {
  if constexpr (std::endian::native == std::endian::big) value = byteswap(value);
  std::memcpy(bytes, &value, sizeof value);
}

// Copies `n_bytes`, which are few, in whole blocks: up to kCopyBlockBytes - 1 more are
// read and written.
inline constexpr std::size_t kCopyBlockBytes = 16;
inline void copy_blocks(const std::uint8_t* source, std::size_t n_bytes,
                        std::uint8_t* target) noexcept {
  for (std::size_t i = 0; i < n_bytes; i += kCopyBlockBytes) {
    std::memcpy(target + i, source + i, kCopyBlockBytes);
  }
}

// Whether two pieces of memory of `size` bytes are the same: for short ones, such as
// names, where a call of memcmp costs more than the comparison.
inline bool same_bytes(const std::uint8_t* a, const std::uint8_t* b,
                       std::size_t size) noexcept {
  const auto differ = [&]<typename UInt>(UInt) {
    // The first and the last word of each: they overlap where size is not a multiple.
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
