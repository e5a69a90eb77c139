// Window: 64 bytes, and a mask of where values end in them -> where the next begins.
// What the kernels that work by windows have in common.
#pragma once

#include <cstddef>
#include <cstdint>

#include "varint/kernels.h"

namespace fastrec::kernels {

inline constexpr std::size_t kWindowBytes = 64;

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
