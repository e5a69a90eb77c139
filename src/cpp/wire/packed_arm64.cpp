// 64 bytes at a time, by NEON. As in packed_avx2.cpp, a mask has the ends of the
// values, and a shuffle (TBL) aligns four of them. AArch64 has neither PDEP nor PEXT,
// so the offset of four values depends on the four before, and long values are decoded
// with the bit operations of packed_portable.cpp.
//
//   all of 1 byte         widened
//   all of 1 to 3 bytes   four values by one shuffle
//   others                one at a time
//
// packed_portable.cpp decodes the bytes after the last whole window.

#if defined(__aarch64__)

#include <arm_neon.h>

#include <algorithm>
#include <array>
#include <bit>

#include "wire/shuffles.h"
#include "wire/window.h"

namespace fastrec::kernels {
namespace {

// By the low bits of a mask of ends: the size of four values in bytes.
constexpr auto kSizes = [] {
  std::array<std::uint8_t, std::size_t{1} << kShuffleBits> sizes{};
  for (std::size_t ends = 0; ends < sizes.size(); ++ends) {
    std::size_t rest = ends;
    for (int value = 0; value < 3; ++value) rest &= rest - 1;
    sizes[ends] = static_cast<std::uint8_t>(rest == 0 ? 0 : std::countr_zero(rest) + 1);
  }
  return sizes;
}();

// The mask of the bytes without a top bit.
inline std::uint64_t ends_of(const std::uint8_t* p) noexcept {
  // One bit for each byte, at its place within eight, and three pairwise sums.
  const uint8x16_t places = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const auto ends = [&](std::size_t i) {
    return vandq_u8(vcgezq_s8(vreinterpretq_s8_u8(vld1q_u8(p + 16 * i))), places);
  };
  const uint8x16_t low = vpaddq_u8(ends(0), ends(1));
  const uint8x16_t high = vpaddq_u8(ends(2), ends(3));
  const uint8x16_t all = vpaddq_u8(low, high);
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(all, all)), 0);
}

inline void store_four(uint32x4_t four, std::int64_t* values) noexcept {
  vst1q_s64(values, vreinterpretq_s64_u64(vmovl_u32(vget_low_u32(four))));
  vst1q_s64(values + 2, vreinterpretq_s64_u64(vmovl_high_u32(four)));
}

inline void store_four(uint32x4_t four, std::int32_t* values) noexcept {
  vst1q_s32(values, vreinterpretq_s32_u32(four));
}

template <typename Int>
inline void decode_single_bytes(const std::uint8_t* p, Int* values) noexcept {
  for (std::size_t i = 0; i < kWindowBytes; i += 8) {
    const uint16x8_t eight = vmovl_u8(vld1_u8(p + i));
    store_four(vmovl_u16(vget_low_u16(eight)), values + i);
    store_four(vmovl_high_u16(eight), values + i + 4);
  }
}

// Decodes four values of at most 3 bytes; the low bits of `ends` have their ends.
template <typename Int>
inline void decode_four(const std::uint8_t* p, std::uint64_t ends,
                        Int* values) noexcept {
  const uint8x16_t shuffle = vld1q_u8(kShuffles.bytes[kShuffles.indices[ends]].data());
  const uint16x8_t apart = vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(p), shuffle));
  // Joins pairs of 7 bits to 14, and pairs of 14 bits to 28: the inserted bits replace
  // the top bits.
  const uint32x4_t pairs =
      vreinterpretq_u32_u16(vsliq_n_u16(apart, vshrq_n_u16(apart, 8), 7));
  store_four(vsliq_n_u32(pairs, vshrq_n_u32(pairs, 16), 14), values);
}

// Decodes `n` values with these `ends`. kMayBeLong allows 9 and 10 bytes.
template <bool kMayBeLong, typename Int>
inline Step decode_each(std::uint64_t ends, std::size_t n,
                        Cursor<Int>* cursor) noexcept {
  std::uint64_t place = 0;
  std::uint64_t differ = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint8_t* p = cursor->p + place;
    const auto end = static_cast<std::uint64_t>(std::countr_zero(ends)) + 1;
    ends &= ends - 1;
    const std::uint64_t length = end - place;
    std::uint64_t bits =
        without_top_bits(load_le<std::uint64_t>(p) & kVarintBits.low[length]);
    if constexpr (kMayBeLong) {
      const std::uint64_t rest = load_le<std::uint16_t>(p + 8);
      bits |= without_top_bits(rest & kVarintBits.high[length]) << 56;
    }
    const auto value = static_cast<Int>(static_cast<std::int64_t>(bits));
    differ |= static_cast<std::uint64_t>(std::int64_t{value}) ^ bits;
    cursor->values[i] = value;
    place = end;
  }
  advance(place, n, cursor);
  return differ == 0 ? Step::kDone : Step::kOutOfRange;
}

// Decodes the window at the cursor. Returns kNone if a value is too long.
template <typename Int>
inline Step decode_window(Cursor<Int>* cursor) noexcept {
  const std::uint64_t ends = ends_of(cursor->p);
  if (has_single_bytes(ends, *cursor)) {
    decode_single_bytes(cursor->p, cursor->values);
    advance(kWindowBytes, kWindowBytes, cursor);
    return Step::kDone;
  }
  const std::size_t n =
      std::min(static_cast<std::size_t>(std::popcount(ends)), cursor->n_left);
  if (can_shuffle(~ends)) {
    std::uint64_t place = 0;
    for (std::size_t i = 0; i + 4 <= n; i += 4) {
      const std::uint64_t ends_here = ends >> place & kShuffleMask;
      decode_four(cursor->p + place, ends_here, cursor->values + i);
      place += kSizes[ends_here];
    }
    advance(place, n / 4 * 4, cursor);
    return Step::kDone;
  }
  const std::size_t max_bytes = max_bytes_of(~ends);
  if (max_bytes > kMaxVarintBytes) return Step::kNone;
  return max_bytes <= 8 ? decode_each<false>(ends, n, cursor)
                        : decode_each<true>(ends, n, cursor);
}

template <typename Int>
inline const std::uint8_t* decode(Bytes packed, std::size_t count, Int* values,
                                  Errc* errc) noexcept {
  Cursor<Int> cursor{packed.data(), values, count};
  const std::uint8_t* end = packed.data() + packed.size();
  Step step = Step::kDone;
  while (step == Step::kDone && cursor.n_left >= 4 &&
         static_cast<std::size_t>(end - cursor.p) >= kReadableBytes) {
    step = decode_window(&cursor);
  }
  return decode_rest(step, cursor, end, errc);
}

std::size_t decode_list(const std::uint8_t* packed, std::size_t n_bytes,
                        std::int64_t* values) noexcept {
  Cursor<std::int64_t> cursor{packed, values, n_bytes};
  for (const std::uint8_t* const end = packed + n_bytes; cursor.p != end;) {
    const auto n_left = static_cast<std::size_t>(end - cursor.p);
    const std::uint64_t all_ends = ends_of(cursor.p);
    const std::uint64_t ends = first_bytes(all_ends, n_left);
    if (ends == 0 || runs_of<8>(first_bytes(~all_ends, n_left)) != 0)
      return kNotDecoded;
    decode_each<false>(ends, static_cast<std::size_t>(std::popcount(ends)), &cursor);
  }
  return static_cast<std::size_t>(cursor.values - values);
}

std::size_t count(Bytes packed) noexcept {
  const std::uint8_t* p = packed.data();
  std::size_t left = packed.size();
  std::size_t n = 0;
  for (; left >= kWindowBytes; p += kWindowBytes, left -= kWindowBytes) {
    uint8x16_t tops = vshrq_n_u8(vld1q_u8(p), 7);
    for (std::size_t i = 16; i < kWindowBytes; i += 16) {
      tops = vsraq_n_u8(tops, vld1q_u8(p + i), 7);
    }
    n += kWindowBytes - vaddvq_u8(tops);
  }
  return n + kPortable.count({p, left});
}

}  // namespace

constinit const VarintKernel kArm64 = {
    "arm64", Isa::kArm64, decode<std::int64_t>, decode<std::int32_t>,
    count,   decode_list};

}  // namespace fastrec::kernels

#endif
