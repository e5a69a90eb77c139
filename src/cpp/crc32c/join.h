// Join: the remainders of parts -> that of the whole, by PCLMULQDQ and the CRC
// instruction of SSE4.2. What the kernels for x86-64 have in common.
//
// Whoever includes this has the intrinsics.
#pragma once

#include <cstddef>
#include <cstdint>

#include "crc32c/kernels.h"

#define FASTREC_TARGET_JOIN FASTREC_TARGET("sse4.2,pclmul")

namespace fastrec::kernels {

// `remainder`, moved by so many words, once it is reduced.
FASTREC_TARGET_JOIN
inline __m128i moved(std::uint64_t remainder, std::size_t words) noexcept {
  return _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(remainder)),
                              _mm_cvtsi64_si128(kJoinFactors[words]), 0x00);
}

// The remainder of a sum of those: products of 32 by 32 bits, in the lower word.
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

}  // namespace fastrec::kernels
