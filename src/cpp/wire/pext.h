// Pext: a window and the ends of its values -> values of any length, extracted by PEXT
// one at a time. Shared by the x86-64 kernels.
//
// The including file includes the intrinsics, and marks callers with their target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/window.h"

#define FASTREC_TARGET_PEXT FASTREC_TARGET("bmi,bmi2,popcnt")

namespace fastrec::kernels {

// The offset of the end of the `n`-th value, for `n` of 1 to 64.
FASTREC_TARGET_PEXT
inline std::uint64_t end_of(std::size_t n, std::uint64_t ends) noexcept {
  return _tzcnt_u64(_pdep_u64(std::uint64_t{1} << (n - 1), ends)) + 1;
}

// Decodes the value of `length` bytes at `p`. kMayBeLong allows 9 and 10 bytes.
template <bool kMayBeLong>
FASTREC_TARGET_PEXT inline std::uint64_t decode_one(const std::uint8_t* p,
                                                    std::uint64_t length) noexcept {
  const std::uint64_t bits =
      _pext_u64(load_le<std::uint64_t>(p), kVarintBits.low[length]);
  if constexpr (!kMayBeLong) return bits;
  return bits | _pext_u64(load_le<std::uint16_t>(p + 8), kVarintBits.high[length])
                    << 56;
}

// Decodes an even number `n` of values with these `ends`.
template <bool kMayBeLong, typename Int>
[[gnu::always_inline]] FASTREC_TARGET_PEXT inline Step decode_pairs(
    std::uint64_t ends, std::size_t n, Cursor<Int>* cursor) noexcept {
  const std::uint8_t* p = cursor->p;
  Int* values = cursor->values;
  // Computing the next window first takes it off the chain of values.
  advance(end_of(n, ends), n, cursor);
  std::uint64_t begin = 0;
  std::uint64_t differ = 0;
  const auto store = [&](std::uint64_t bits, Int* value) {
    *value = static_cast<Int>(static_cast<std::int64_t>(bits));
    differ |= static_cast<std::uint64_t>(std::int64_t{*value}) ^ bits;
  };
  for (std::size_t i = 0; i < n; i += 2) {
    const std::uint64_t middle = _tzcnt_u64(ends) + 1;
    ends = _blsr_u64(ends);
    const std::uint64_t end = _tzcnt_u64(ends) + 1;
    ends = _blsr_u64(ends);
    store(decode_one<kMayBeLong>(p + begin, middle - begin), &values[i]);
    store(decode_one<kMayBeLong>(p + middle, end - middle), &values[i + 1]);
    begin = end;
  }
  return differ == 0 ? Step::kDone : Step::kOutOfRange;
}

// Decodes up to `n` values with these `ends`. Returns kNone for fewer than 2 values, or
// a value of more than 10 bytes. `continuing` is the mask of bytes with a top bit.
template <typename Int>
[[gnu::always_inline]] FASTREC_TARGET_PEXT inline Step decode_by_pext(
    std::uint64_t ends, std::uint64_t continuing, std::size_t n,
    Cursor<Int>* cursor) noexcept {
  const std::size_t max_bytes = max_bytes_of(continuing);
  if (n < 2 || max_bytes > kMaxVarintBytes) return Step::kNone;
  return max_bytes <= 8 ? decode_pairs<false>(ends, n / 2 * 2, cursor)
                        : decode_pairs<true>(ends, n / 2 * 2, cursor);
}

}  // namespace fastrec::kernels
