// Window: 64 bytes and the mask of the ends of values in them. Shared by the vectorized
// kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/packed.h"

namespace fastrec::kernels {

inline constexpr std::size_t kWindowBytes = 64;

// How many bytes a kernel may read from the beginning of a window: it loads 16 bytes
// for a value that begins at byte 63.
inline constexpr std::size_t kReadableBytes = kWindowBytes + 16;

// The value bits of a varint, by its length: in its first 8 bytes, and in the other 2.
struct VarintBits {
  std::array<std::uint64_t, kMaxVarintBytes + 1> low{};
  std::array<std::uint64_t, kMaxVarintBytes + 1> high{};
};

inline constexpr VarintBits kVarintBits = [] {
  VarintBits bits;
  for (std::size_t length = 1; length < bits.low.size(); ++length) {
    bits.low[length] = ~kTopBits >> (length < 8 ? 64 - 8 * length : 0);
    bits.high[length] = length > 8 ? std::uint64_t{0x7f7f} >> 8 * (10 - length) : 0;
  }
  return bits;
}();

// The remaining input and output.
template <typename Int>
struct Cursor {
  const std::uint8_t* p;
  Int* values;
  std::size_t n_left;
};

// The result of decoding a window: kNone if it must be decoded one value at a time.
enum class Step { kDone, kNone, kOutOfRange };

// Moves the cursor past `n` values of `n_bytes` in total.
template <typename Int>
inline void advance(std::uint64_t n_bytes, std::size_t n,
                    Cursor<Int>* cursor) noexcept {
  *cursor = {cursor->p + n_bytes, cursor->values + n, cursor->n_left - n};
}

// Whether a window has 64 values of 1 byte, all of them requested.
template <typename Int>
inline bool has_single_bytes(std::uint64_t ends, const Cursor<Int>& cursor) noexcept {
  return ends == ~std::uint64_t{0} && cursor.n_left >= kWindowBytes;
}

// Where a run of `kLength` bytes with a top bit begins, for a power of two: in each
// value of more than `kLength` bytes. `continuing` is the mask of bytes with a top bit.
template <unsigned kLength>
std::uint64_t runs_of(std::uint64_t continuing) noexcept {
  const auto runs = runs_of<kLength / 2>(continuing);
  return runs & runs >> kLength / 2;
}
template <>
inline std::uint64_t runs_of<1>(std::uint64_t continuing) noexcept {
  return continuing;
}

// The first `n_bytes` bits of `mask`.
inline std::uint64_t first_bytes(std::uint64_t mask, std::size_t n_bytes) noexcept {
  return n_bytes < kWindowBytes ? mask & ((std::uint64_t{1} << n_bytes) - 1) : mask;
}

// An upper bound on the bytes of a value in a window: 8, 10, or 11 if one is too long.
inline std::size_t max_bytes_of(std::uint64_t continuing) noexcept {
  const std::uint64_t runs_of_8 = runs_of<8>(continuing);
  if ((runs_of_8 & runs_of<2>(continuing) >> 8) != 0) return kMaxVarintBytes + 1;
  return runs_of_8 == 0 ? 8 : kMaxVarintBytes;
}

// Decodes the rest after the last window, whose result was `last`: a few values, or an
// invalid one.
template <typename Int>
inline const std::uint8_t* decode_rest(Step last, const Cursor<Int>& cursor,
                                       const std::uint8_t* end, Errc* errc) noexcept {
  if (last == Step::kOutOfRange) {
    *errc = Errc::kValueOutOfRange;
    return nullptr;
  }
  return kPortable.decode<Int>()({cursor.p, end}, cursor.n_left, cursor.values, errc);
}

}  // namespace fastrec::kernels
