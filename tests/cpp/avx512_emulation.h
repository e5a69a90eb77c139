// Avx512Emulation: the AVX-512 intrinsics of our kernels in plain C++.
//
// It verifies the logic of a kernel, and that the kernel accesses only its own memory:
// masked loads and stores access only the bytes in their mask. It cannot verify that
// the CPU implements the instructions as written here, or that the compiler emits the
// right ones; on a CPU with AVX-512 the same tests run on the kernel itself.
//
// Source: Intel Intrinsics Guide (the Operation of each), and Intel's manual, volume 2,
// for BMI and SSE4.2. Lanes are in byte order, so the host must be little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fastrec::emulated_kernels {

template <std::size_t kBytes>
struct Vector {
  std::uint8_t bytes[kBytes];

  template <typename Lane>
  Lane get(std::size_t i) const noexcept {
    Lane lane;
    std::memcpy(&lane, bytes + i * sizeof lane, sizeof lane);
    return lane;
  }
  template <typename Lane>
  void set(std::size_t i, Lane lane) noexcept {
    std::memcpy(bytes + i * sizeof lane, &lane, sizeof lane);
  }
};

using __m128i = Vector<16>;
using __m256i = Vector<32>;
using __m512i = Vector<64>;
using __mmask8 = std::uint8_t;
using __mmask16 = std::uint16_t;
using __mmask64 = std::uint64_t;

// The vector whose lane i is `lane_of(i)`.
template <typename Lane, typename LaneOf>
__m512i lanes(LaneOf&& lane_of) noexcept {
  __m512i result;
  for (std::size_t i = 0; i < sizeof result / sizeof(Lane); ++i) {
    result.set<Lane>(i, static_cast<Lane>(lane_of(i)));
  }
  return result;
}

constexpr bool has(std::uint64_t mask, std::size_t i) noexcept {
  return (mask >> i & 1) != 0;
}

inline std::uint64_t _bzhi_u64(std::uint64_t value, unsigned index) noexcept {
  index &= 0xff;
  return index < 64 ? value & ((std::uint64_t{1} << index) - 1) : value;
}

inline std::uint64_t _blsr_u64(std::uint64_t value) noexcept {
  return value & (value - 1);
}

inline std::uint64_t _tzcnt_u64(std::uint64_t value) noexcept {
  return static_cast<std::uint64_t>(std::countr_zero(value));
}

inline long long _mm_popcnt_u64(std::uint64_t value) noexcept {
  return std::popcount(value);
}

inline std::uint64_t _pdep_u64(std::uint64_t value, std::uint64_t mask) noexcept {
  std::uint64_t result = 0;
  for (std::size_t i = 0, k = 0; i < 64; ++i) {
    if (has(mask, i)) result |= std::uint64_t{has(value, k++)} << i;
  }
  return result;
}

inline std::uint64_t _pext_u64(std::uint64_t value, std::uint64_t mask) noexcept {
  std::uint64_t result = 0;
  for (std::size_t i = 0, k = 0; i < 64; ++i) {
    if (has(mask, i)) result |= std::uint64_t{has(value, i)} << k++;
  }
  return result;
}

// The remainder of `crc` and the word after it, as CRC32 defines it for SSE4.2.
inline std::uint64_t _mm_crc32_u64(std::uint64_t crc, std::uint64_t word) noexcept {
  std::uint64_t state = (crc & 0xffffffff) ^ word;
  for (int i = 0; i < 64; ++i) {
    state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78 : 0);
  }
  return state;
}

// The same for parts of a word.
template <typename UInt>
std::uint32_t crc32_of_part(std::uint32_t crc, UInt part) noexcept {
  std::uint32_t state = crc ^ part;
  for (std::size_t i = 0; i < 8 * sizeof part; ++i) {
    state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78 : 0);
  }
  return state;
}

inline std::uint32_t _mm_crc32_u32(std::uint32_t crc, std::uint32_t part) noexcept {
  return crc32_of_part(crc, part);
}

inline std::uint32_t _mm_crc32_u16(std::uint32_t crc, std::uint16_t part) noexcept {
  return crc32_of_part(crc, part);
}

inline std::uint32_t _mm_crc32_u8(std::uint32_t crc, std::uint8_t part) noexcept {
  return crc32_of_part(crc, part);
}

inline __m128i _mm_cvtsi32_si128(int value) noexcept {
  __m128i result{};
  result.set(0, value);
  return result;
}

inline __m128i _mm_cvtsi64_si128(long long value) noexcept {
  __m128i result{};
  result.set(0, value);
  return result;
}

inline long long _mm_extract_epi64(__m128i a, std::size_t i) noexcept {
  return a.get<long long>(i);
}

inline long long _mm_cvtsi128_si64(__m128i a) noexcept {
  return _mm_extract_epi64(a, 0);
}

inline __m128i _mm_xor_si128(__m128i a, __m128i b) noexcept {
  for (std::size_t i = 0; i < sizeof a; ++i) a.bytes[i] ^= b.bytes[i];
  return a;
}

// The carry-less product of one word of `a`, selected by bit 0 of `which`, and one of
// `b`, selected by bit 4.
inline __m128i _mm_clmulepi64_si128(__m128i a, __m128i b, unsigned which) noexcept {
  const auto factor = a.get<std::uint64_t>(which & 1);
  const auto other = b.get<std::uint64_t>(which >> 4 & 1);
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    if (!has(other, i)) continue;
    low ^= factor << i;
    if (i > 0) high ^= factor >> (64 - i);
  }
  __m128i result;
  result.set(0, low);
  result.set(1, high);
  return result;
}

inline __m128i _mm_loadu_si128(const __m128i* from) noexcept {
  __m128i result;
  std::memcpy(&result, from, sizeof result);
  return result;
}

inline __m128i _mm_loadl_epi64(const __m128i* from) noexcept {
  __m128i result{};
  std::memcpy(&result, from, 8);
  return result;
}

inline __m512i _mm512_load_si512(const void* from) noexcept {
  __m512i result;
  std::memcpy(&result, from, sizeof result);
  return result;
}

inline __m512i _mm512_loadu_si512(const void* from) noexcept {
  return _mm512_load_si512(from);
}

inline void _mm512_storeu_si512(void* to, __m512i a) noexcept {
  std::memcpy(to, &a, sizeof a);
}

inline __m512i _mm512_maskz_loadu_epi8(__mmask64 mask, const void* from) noexcept {
  const auto* bytes = static_cast<const std::uint8_t*>(from);
  return lanes<std::uint8_t>(
      [&](std::size_t i) { return has(mask, i) ? bytes[i] : 0; });
}

inline __m512i _mm512_maskz_loadu_epi64(__mmask8 mask, const void* from) noexcept {
  __m512i result{};
  for (std::size_t i = 0; i < 8; ++i) {
    if (has(mask, i)) {
      std::memcpy(result.bytes + 8 * i, static_cast<const char*>(from) + 8 * i, 8);
    }
  }
  return result;
}

// The low byte of each lane.
inline void _mm512_mask_cvtepi64_storeu_epi8(void* to, __mmask8 mask,
                                             __m512i a) noexcept {
  for (std::size_t i = 0; i < 8; ++i) {
    if (has(mask, i)) static_cast<std::uint8_t*>(to)[i] = a.bytes[8 * i];
  }
}

inline __m512i _mm512_maskz_set1_epi64(__mmask8 mask, long long value) noexcept {
  return lanes<long long>([&](std::size_t i) { return has(mask, i) ? value : 0; });
}

inline void _mm512_mask_storeu_epi32(void* to, __mmask16 mask, __m512i a) noexcept {
  for (std::size_t i = 0; i < 16; ++i) {
    if (has(mask, i)) std::memcpy(static_cast<char*>(to) + 4 * i, a.bytes + 4 * i, 4);
  }
}

inline void _mm512_mask_storeu_epi64(void* to, __mmask8 mask, __m512i a) noexcept {
  for (std::size_t i = 0; i < 8; ++i) {
    if (has(mask, i)) std::memcpy(static_cast<char*>(to) + 8 * i, a.bytes + 8 * i, 8);
  }
}

inline __m512i _mm512_set1_epi8(char value) noexcept {
  return lanes<char>([&](std::size_t) { return value; });
}

inline __m512i _mm512_set1_epi16(short value) noexcept {
  return lanes<std::int16_t>([&](std::size_t) { return value; });
}

inline __m512i _mm512_set1_epi32(int value) noexcept {
  return lanes<std::int32_t>([&](std::size_t) { return value; });
}

inline __m512i _mm512_set1_epi64(long long value) noexcept {
  return lanes<long long>([&](std::size_t) { return value; });
}

// Arguments are in order from the highest lane to the lowest.
inline __m512i _mm512_set_epi64(long long h, long long g, long long f, long long e,
                                long long d, long long c, long long b,
                                long long a) noexcept {
  const long long values[] = {a, b, c, d, e, f, g, h};
  return lanes<long long>([&](std::size_t i) { return values[i]; });
}

inline __m512i _mm512_setzero_si512() noexcept { return {}; }

inline __m512i _mm512_zextsi128_si512(__m128i a) noexcept {
  __m512i result{};
  std::memcpy(&result, &a, sizeof a);
  return result;
}

inline __m128i _mm512_extracti32x4_epi32(__m512i a, int quarter) noexcept {
  __m128i result;
  std::memcpy(&result, a.bytes + 16 * quarter, sizeof result);
  return result;
}

inline __m256i _mm512_extracti64x4_epi64(__m512i a, int half) noexcept {
  __m256i result;
  std::memcpy(&result, a.bytes + 32 * half, sizeof result);
  return result;
}

inline __m256i _mm512_castsi512_si256(__m512i a) noexcept {
  return _mm512_extracti64x4_epi64(a, 0);
}

inline __m512i _mm512_cvtepu32_epi64(__m256i a) noexcept {
  return lanes<std::uint64_t>([&](std::size_t i) { return a.get<std::uint32_t>(i); });
}

inline __m512i _mm512_cvtepu8_epi64(__m128i a) noexcept {
  return lanes<std::uint64_t>([&](std::size_t i) { return a.bytes[i]; });
}

inline __m512i _mm512_cvtepu8_epi32(__m128i a) noexcept {
  return lanes<std::uint32_t>([&](std::size_t i) { return a.bytes[i]; });
}

inline __mmask64 _mm512_movepi8_mask(__m512i a) noexcept {
  __mmask64 mask = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    mask |= std::uint64_t{a.bytes[i] >= 0x80} << i;
  }
  return mask;
}

inline __mmask64 _mm512_cmple_epu8_mask(__m512i a, __m512i b) noexcept {
  __mmask64 mask = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    mask |= std::uint64_t{a.bytes[i] <= b.bytes[i]} << i;
  }
  return mask;
}

inline __m512i _mm512_and_si512(__m512i a, __m512i b) noexcept {
  return lanes<std::uint8_t>([&](std::size_t i) { return a.bytes[i] & b.bytes[i]; });
}

inline __m512i _mm512_xor_si512(__m512i a, __m512i b) noexcept {
  return lanes<std::uint8_t>([&](std::size_t i) { return a.bytes[i] ^ b.bytes[i]; });
}

inline __m512i _mm512_or_si512(__m512i a, __m512i b) noexcept {
  return lanes<std::uint8_t>([&](std::size_t i) { return a.bytes[i] | b.bytes[i]; });
}

using Word64 = std::uint64_t;

inline __m512i _mm512_add_epi64(__m512i a, __m512i b) noexcept {
  return lanes<Word64>([&](auto i) { return a.get<Word64>(i) + b.get<Word64>(i); });
}

inline __m512i _mm512_sub_epi64(__m512i a, __m512i b) noexcept {
  return lanes<Word64>([&](auto i) { return a.get<Word64>(i) - b.get<Word64>(i); });
}

// Shifts by 64 or more return zero.
inline __m512i _mm512_sllv_epi64(__m512i a, __m512i count) noexcept {
  return lanes<Word64>([&](auto i) {
    const auto n = count.get<Word64>(i);
    return n < 64 ? a.get<Word64>(i) << n : 0;
  });
}

inline __m512i _mm512_slli_epi64(__m512i a, unsigned count) noexcept {
  return lanes<Word64>([&](auto i) { return a.get<Word64>(i) << count; });
}

inline __m512i _mm512_srli_epi64(__m512i a, unsigned count) noexcept {
  return lanes<Word64>([&](auto i) { return a.get<Word64>(i) >> count; });
}

inline __m512i _mm512_lzcnt_epi64(__m512i a) noexcept {
  return lanes<Word64>([&](auto i) { return std::countl_zero(a.get<Word64>(i)); });
}

// Each byte is 8 bits of the lane, starting at the bit in the control; the lane wraps
// around.
inline __m512i _mm512_multishift_epi64_epi8(__m512i control, __m512i a) noexcept {
  return lanes<std::uint8_t>(
      [&](auto i) { return std::rotr(a.get<Word64>(i / 8), control.bytes[i] & 63); });
}

inline __mmask8 _mm512_cmpgt_epu64_mask(__m512i a, __m512i b) noexcept {
  __mmask8 mask = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    if (a.get<Word64>(i) > b.get<Word64>(i)) {
      mask = static_cast<__mmask8>(mask | 1u << i);
    }
  }
  return mask;
}

inline __m512i _mm512_mask_mov_epi64(__m512i other, __mmask8 mask, __m512i a) noexcept {
  return lanes<Word64>(
      [&](auto i) { return (has(mask, i) ? a : other).template get<Word64>(i); });
}

inline __m512i _mm512_maskz_mov_epi64(__mmask8 mask, __m512i a) noexcept {
  return _mm512_mask_mov_epi64({}, mask, a);
}

// Looks up every three bits in the table; the bit of `a` is the highest of the index.
inline __m512i _mm512_ternarylogic_epi64(__m512i a, __m512i b, __m512i c,
                                         unsigned table) noexcept {
  return lanes<std::uint8_t>([&](std::size_t i) {
    unsigned result = 0;
    for (std::size_t bit = 0; bit < 8; ++bit) {
      const std::size_t index = std::size_t{has(a.bytes[i], bit)} << 2 |
                                std::size_t{has(b.bytes[i], bit)} << 1 |
                                std::size_t{has(c.bytes[i], bit)};
      result |= unsigned{has(table, index)} << bit;
    }
    return result;
  });
}

inline __m512i _mm512_clmulepi64_epi128(__m512i a, __m512i b, unsigned which) noexcept {
  __m512i result;
  for (int quarter = 0; quarter < 4; ++quarter) {
    const __m128i product =
        _mm_clmulepi64_si128(_mm512_extracti32x4_epi32(a, quarter),
                             _mm512_extracti32x4_epi32(b, quarter), which);
    std::memcpy(result.bytes + 16 * quarter, &product, sizeof product);
  }
  return result;
}

inline __m512i _mm512_add_epi8(__m512i a, __m512i b) noexcept {
  return lanes<std::uint8_t>([&](std::size_t i) { return a.bytes[i] + b.bytes[i]; });
}

inline __m512i _mm512_maskz_compress_epi8(__mmask64 mask, __m512i a) noexcept {
  __m512i result{};
  for (std::size_t i = 0, k = 0; i < 64; ++i) {
    if (has(mask, i)) result.bytes[k++] = a.bytes[i];
  }
  return result;
}

inline __m512i _mm512_maskz_permutexvar_epi8(__mmask64 mask, __m512i index,
                                             __m512i a) noexcept {
  return lanes<std::uint8_t>(
      [&](std::size_t i) { return has(mask, i) ? a.bytes[index.bytes[i] & 0x3f] : 0; });
}

inline __m512i _mm512_permutexvar_epi8(__m512i index, __m512i a) noexcept {
  return _mm512_maskz_permutexvar_epi8(~__mmask64{0}, index, a);
}

// Products of unsigned bytes of `a` and signed bytes of `b`, added in pairs with 16-bit
// saturation.
inline __m512i _mm512_maddubs_epi16(__m512i a, __m512i b) noexcept {
  return lanes<std::int16_t>([&](std::size_t i) {
    int sum = 0;
    for (const std::size_t k : {2 * i, 2 * i + 1}) {
      sum += a.bytes[k] * static_cast<std::int8_t>(b.bytes[k]);
    }
    return sum < -0x8000 ? -0x8000 : sum > 0x7fff ? 0x7fff : sum;
  });
}

// Products of signed 16-bit lanes, added in pairs modulo 2^32.
inline __m512i _mm512_madd_epi16(__m512i a, __m512i b) noexcept {
  return lanes<std::int32_t>([&](std::size_t i) {
    std::uint32_t sum = 0;
    for (const std::size_t k : {2 * i, 2 * i + 1}) {
      sum +=
          static_cast<std::uint32_t>(a.get<std::int16_t>(k) * b.get<std::int16_t>(k));
    }
    return sum;
  });
}

}  // namespace fastrec::emulated_kernels
