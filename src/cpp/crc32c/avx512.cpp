// Carry-less products of 512 bits, beside the CRC instruction: of every 328 bytes the
// vectors take 256 and the instruction 72. Where a product of this width takes two
// cycles (Ice Lake, Zen 5), both are busy to the end; where it takes one (Sapphire
// Rapids), the instruction does not hold up the vectors.
//
// tests/cpp/avx512_emulation.h can stand in for the instructions, so that the logic is
// tested on CPUs that lack them.

#include "crc32c/kernels.h"

#if defined(__x86_64__) || defined(FASTREC_EMULATE_AVX512)

#if !defined(FASTREC_EMULATE_AVX512)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 says of its own header what it should not.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define FASTREC_TARGET_STRETCH FASTREC_TARGET("avx512f,sse4.2,pclmul,vpclmulqdq")

#include "crc32c/stretch.h"

namespace fastrec::kernels {
namespace {

// For fewer, vpclmul.cpp is as fast.
constexpr std::size_t kFewestSteps = 4;

constexpr int kXorOfThree = 0x96;  // the truth table of VPTERNLOG

// What moves both words of every lane by so many words, which is a number for each.
FASTREC_TARGET_STRETCH
inline __m512i factors(std::size_t first, std::size_t second, std::size_t third,
                       std::size_t fourth) noexcept {
  // Not moved at all: a factor of zero, and the lane itself is added elsewhere.
  const auto upper = [](std::size_t words) -> long long { return kJoinFactors[words]; };
  const auto lower = [](std::size_t words) -> long long {
    return words == 0 ? 0 : kJoinFactors[words + 1];
  };
  return _mm512_set_epi64(upper(fourth), lower(fourth), upper(third), lower(third),
                          upper(second), lower(second), upper(first), lower(first));
}

FASTREC_TARGET_STRETCH
inline __m512i factors(std::size_t words) noexcept {
  return factors(words, words, words, words);
}

// `sum`, moved by `by`, and `next`.
FASTREC_TARGET_STRETCH
inline __m512i fold_into(__m512i next, __m512i sum, __m512i by) noexcept {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, by, 0x00),
                                   _mm512_clmulepi64_epi128(sum, by, 0x11), next,
                                   kXorOfThree);
}

class Vectors {
 public:
  static constexpr std::size_t kBytes = 256;
  static constexpr std::size_t kPartWords = 3;

  FASTREC_TARGET_STRETCH
  Vectors(std::uint32_t state, const std::uint8_t* next) noexcept
      : first_(_mm512_xor_si512(load(next), _mm512_zextsi128_si512(_mm_cvtsi32_si128(
                                                static_cast<int>(state))))),
        second_(load(next + 64)),
        third_(load(next + 128)),
        fourth_(load(next + 192)),
        by_(factors(kBytes / 8)) {}

  FASTREC_TARGET_STRETCH
  void fold(const std::uint8_t* next) noexcept {
    first_ = fold_into(load(next), first_, by_);
    second_ = fold_into(load(next + 64), second_, by_);
    third_ = fold_into(load(next + 128), third_, by_);
    fourth_ = fold_into(load(next + 192), fourth_, by_);
  }

  FASTREC_TARGET_STRETCH
  std::uint64_t remainder() const noexcept {
    const __m512i half = fold_into(second_, first_, factors(8));
    const __m512i other = fold_into(fourth_, third_, factors(8));
    const __m512i all = fold_into(other, half, factors(16));
    // The first three lanes to where the last one is.
    const __m512i lanes = fold_into(_mm512_setzero_si512(), all, factors(6, 4, 2, 0));
    const __m128i front = _mm_xor_si128(_mm512_extracti32x4_epi32(lanes, 0),
                                        _mm512_extracti32x4_epi32(lanes, 1));
    const __m128i back = _mm_xor_si128(_mm512_extracti32x4_epi32(lanes, 2),
                                       _mm512_extracti32x4_epi32(all, 3));
    return remainder_of(_mm_xor_si128(front, back));
  }

 private:
  FASTREC_TARGET_STRETCH
  static __m512i load(const std::uint8_t* next) noexcept {
    return _mm512_loadu_si512(next);
  }

  __m512i first_;
  __m512i second_;
  __m512i third_;
  __m512i fourth_;
  __m512i by_;
};

}  // namespace

FASTREC_TARGET_STRETCH
std::uint32_t extend_avx512(std::uint32_t crc, Bytes data) noexcept {
  std::uint32_t state = ~crc;
  const Bytes rest = sum_stretches<Vectors>(&state, data, kFewestSteps);
  return extend_vpclmul(~state, rest);
}

}  // namespace fastrec::kernels

#endif
