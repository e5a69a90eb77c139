// Varint: the bytes of one varint -> an integer.
//
// A varint has 7 bits per byte, lowest first; every byte except the last has its top
// bit set. As in protobuf, bits above the 64th are dropped, and non-minimal encodings
// of up to 10 bytes are legal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/error.h"

namespace fastrec {

inline constexpr int kMaxVarintBytes = 10;
inline constexpr std::uint64_t kTopBits = 0x8080808080808080;  // of every byte

// Joins the lower 7 bits of all bytes: the value of a varint of up to 8 bytes.
inline std::uint64_t without_top_bits(std::uint64_t bytes) noexcept {
  // Three steps close the gaps between bytes, pairs and halves.
  std::uint64_t x = bytes & ~kTopBits;
  x = (x & 0x007f007f007f007f) | ((x & 0x7f007f007f007f00) >> 1);
  x = (x & 0x00003fff00003fff) | ((x & 0x3fff00003fff0000) >> 2);
  return (x & 0x000000000fffffff) | ((x & 0x0fffffff00000000) >> 4);
}

// Reads the varint in the first `n_bytes` (1 to 8) bytes. Returns false if these are
// not exactly one varint.
inline bool read_varint_of(std::uint64_t bytes, std::size_t n_bytes,
                           std::uint64_t* value) noexcept {
  const std::uint64_t kept = ~std::uint64_t{0} >> (64 - 8 * n_bytes);
  if ((bytes & kept & kTopBits) != ((kept >> 8) & kTopBits)) return false;
  *value = without_top_bits(bytes & kept);
  return true;
}

// Reads one varint at `p`. Returns its end, or nullptr with `*errc` set. `*value` is
// untouched on failure.
inline const std::uint8_t* read_varint(const std::uint8_t* p, const std::uint8_t* end,
                                       std::uint64_t* value, Errc* errc) noexcept {
  if (p < end && *p < 0x80) [[likely]] {
    *value = *p;
    return p + 1;
  }
  std::uint64_t bits = 0;
  for (int i = 0; i < kMaxVarintBytes; ++i) {
    if (p == end) {
      *errc = Errc::kVarintCut;
      return nullptr;
    }
    const std::uint64_t byte = *p++;
    bits |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      *value = bits;
      return p;
    }
  }
  *errc = Errc::kVarintTooLong;
  return nullptr;
}

}  // namespace fastrec
