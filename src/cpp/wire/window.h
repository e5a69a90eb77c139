// Window: 64 bytes, and a mask of where values end in them -> where the next begins.
// What the kernels that work by windows have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/packed_kernels.h"

namespace fastrec::kernels {

inline constexpr std::size_t kWindowBytes = 64;

// From the beginning of a window, so many bytes may be read: the last value begins at
// byte 63 at the latest, and 16 bytes are loaded for it.
inline constexpr std::size_t kReadableBytes = kWindowBytes + 16;

// Which bits of the first 8 bytes, and of the 2 after them, a value of some length has.
struct VarintBits {
  std::array<std::uint64_t, kMostVarintBytes + 1> low{};
  std::array<std::uint64_t, kMostVarintBytes + 1> high{};
};

inline constexpr VarintBits kVarintBits = [] {
  VarintBits bits;
  for (std::size_t length = 1; length < bits.low.size(); ++length) {
    bits.low[length] = ~kTopBits >> (length < 8 ? 64 - 8 * length : 0);
    bits.high[length] = length > 8 ? std::uint64_t{0x7f7f} >> 8 * (10 - length) : 0;
  }
  return bits;
}();

// What is still to be decoded, and where to.
template <typename Int>
struct Cursor {
  const std::uint8_t* p;
  Int* values;
  std::size_t n_left;
};

enum class Step { kDone, kNone, kOutOfRange };

// Moves the cursor past `n` values, which take `n_bytes`.
template <typename Int>
inline void advance(std::uint64_t n_bytes, std::size_t n,
                    Cursor<Int>* cursor) noexcept {
  *cursor = {cursor->p + n_bytes, cursor->values + n, cursor->n_left - n};
}

// Whether a window is 64 values of 1 byte, and all of them are wanted.
template <typename Int>
inline bool has_single_bytes(std::uint64_t ends, const Cursor<Int>& cursor) noexcept {
  return ends == ~std::uint64_t{0} && cursor.n_left >= kWindowBytes;
}

// Whether a value of a window has more than 8 bytes. `continuing` are the bytes that
// have a top bit.
inline bool has_long_value(std::uint64_t continuing) noexcept {
  const std::uint64_t runs_of_2 = continuing & continuing >> 1;
  const std::uint64_t runs_of_4 = runs_of_2 & runs_of_2 >> 2;
  return (runs_of_4 & runs_of_4 >> 4) != 0;
}

// The bytes in `mask` up to the `n_bytes`-th.
inline std::uint64_t first_bytes(std::uint64_t mask, std::size_t n_bytes) noexcept {
  return n_bytes < kWindowBytes ? mask & ((std::uint64_t{1} << n_bytes) - 1) : mask;
}

// The most bytes that a value of a window may have: 8, 10, or more, which is too many.
// `continuing` are the bytes that have a top bit; a value of 9 has eight of them.
inline std::size_t most_bytes_of(std::uint64_t continuing) noexcept {
  const std::uint64_t runs_of_2 = continuing & continuing >> 1;
  const std::uint64_t runs_of_4 = runs_of_2 & runs_of_2 >> 2;
  const std::uint64_t runs_of_8 = runs_of_4 & runs_of_4 >> 4;
  if ((runs_of_8 & runs_of_2 >> 8) != 0) return kMostVarintBytes + 1;
  return runs_of_8 == 0 ? 8 : kMostVarintBytes;
}

// Decodes what the windows have left, of which `last` is the last step: too few values,
// or those at fault.
template <typename Int>
inline const std::uint8_t* decode_rest(Step last, const Cursor<Int>& cursor,
                                       const std::uint8_t* end, Errc* errc) noexcept {
  if (last == Step::kOutOfRange) {
    *errc = Errc::kValueOutOfRange;
    return nullptr;
  }
  return decode_portable({cursor.p, end}, cursor.n_left, cursor.values, errc);
}

}  // namespace fastrec::kernels
