// Join: the remainders of parts -> the remainder of the whole, by PCLMULQDQ and the CRC
// instruction of SSE4.2. Shared by the x86-64 kernels.
//
// The including file includes the intrinsics.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "crc32c/kernels.h"

#define FASTREC_TARGET_JOIN FASTREC_TARGET("sse4.2,pclmul")

namespace fastrec::kernels {

// Multiplies `remainder` by x^(64 * words); reduced() completes the product.
FASTREC_TARGET_JOIN
inline __m128i shifted(std::uint64_t remainder, std::size_t words) noexcept {
  return _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(remainder)),
                              _mm_cvtsi64_si128(kJoinFactors[words]), 0x00);
}

// The remainder of a sum of such products, which have 64 bits.
FASTREC_TARGET_JOIN
inline std::uint64_t reduced(__m128i sum) noexcept {
  return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(sum)));
}

// The remainder of a vector of two words.
FASTREC_TARGET_JOIN
inline std::uint64_t remainder_of(__m128i words) noexcept {
  const auto upper = static_cast<std::uint64_t>(_mm_extract_epi64(words, 1));
  return _mm_crc32_u64(reduced(words), upper);
}

// The base class of a Kernel for count_intact().
struct WordKernel {
  FASTREC_TARGET_JOIN
  static std::uint32_t crc_of_word(std::uint64_t word) noexcept {
    return ~static_cast<std::uint32_t>(_mm_crc32_u64(0xffffffff, word));
  }
};

// Extends `begin` by `data`, word by word. `n_before` bytes before `data` are readable.
FASTREC_TARGET_JOIN
inline std::uint32_t sum_words(std::uint32_t begin, Bytes data,
                               std::size_t n_before = 0) noexcept {
  std::uint64_t state = begin;
  const std::uint8_t* next = data.data();
  std::size_t left = data.size();
  for (; left >= 8; next += 8, left -= 8) {
    state = _mm_crc32_u64(state, load_le<std::uint64_t>(next));
  }
  if (left > 0 && n_before + data.size() >= 8) {
    const std::uint64_t word = last_word(state, next + left, left);
    return static_cast<std::uint32_t>(_mm_crc32_u64(0, word) ^ (state >> (8 * left)));
  }
  auto tail = static_cast<std::uint32_t>(state);
  if ((left & 4) != 0) {
    tail = _mm_crc32_u32(tail, load_le<std::uint32_t>(next));
    next += 4;
  }
  if ((left & 2) != 0) {
    tail = _mm_crc32_u16(tail, load_le<std::uint16_t>(next));
    next += 2;
  }
  if ((left & 1) != 0) tail = _mm_crc32_u8(tail, *next);
  return tail;
}

// Below this size, a join costs more than the three parts gain. On Zen 3, all values
// from 72 to 144 are equally fast.
inline constexpr std::size_t kMinInterleaved = 96;

// Extends `begin` by `data`, three parts at a time.
FASTREC_TARGET_JOIN
inline std::uint32_t sum_interleaved(std::uint32_t begin, Bytes data,
                                     std::size_t n_before = 0) noexcept {
  std::uint64_t state = begin;
  while (data.size() >= kMinInterleaved) {
    const std::size_t words = std::min(data.size() / 24, kMaxPartWords);
    const std::size_t part = 8 * words;
    const std::uint8_t* next = data.data();
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (const std::uint8_t* end = next + part; next != end; next += 8) {
      state = _mm_crc32_u64(state, load_le<std::uint64_t>(next));
      b = _mm_crc32_u64(b, load_le<std::uint64_t>(next + part));
      c = _mm_crc32_u64(c, load_le<std::uint64_t>(next + 2 * part));
    }
    state = c ^ reduced(_mm_xor_si128(shifted(state, 2 * words), shifted(b, words)));
    data = data.subspan(3 * part);
    n_before += 3 * part;
  }
  return sum_words(static_cast<std::uint32_t>(state), data, n_before);
}

}  // namespace fastrec::kernels
