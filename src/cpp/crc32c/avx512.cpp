// Carry-less products of 512 bits, in parallel with the CRC instruction: of every 328
// bytes, the vectors process 256 and the instruction 72. If a product takes two cycles
// (Ice Lake, Zen 5), both finish at the same time; if it takes one (Sapphire Rapids),
// the instruction does not delay the vectors.
//
// tests/cpp/avx512_emulation.h replaces the intrinsics in tests on CPUs without
// AVX-512.

#include "crc32c/kernels.h"

#if defined(__x86_64__) || defined(FASTREC_EMULATE_AVX512)

#if !defined(FASTREC_EMULATE_AVX512)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
// Silences false warnings in GCC 12's own header.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define FASTREC_TARGET_KERNEL FASTREC_TARGET("avx512f,sse4.2,pclmul,vpclmulqdq")

#include "crc32c/intact.h"
#include "crc32c/short.h"
#include "crc32c/stretch.h"

namespace fastrec::kernels {
namespace {

// Below this, sum_words() is as fast.
constexpr std::size_t kMinShortBytes = 96;

// Below this, sum_short() is as fast.
constexpr std::size_t kMinSteps = 4;
static_assert(kMinSteps * 328 <= kMaxShortBytes);

constexpr int kXorOfThree = 0x96;  // the truth table of VPTERNLOG

// The factors that shift both words of every lane by `words`.
FASTREC_TARGET_KERNEL
inline __m512i factors(std::size_t words) noexcept {
  const long long upper = kJoinFactors[words];
  const long long lower = kJoinFactors[words + 1];
  return _mm512_set_epi64(upper, lower, upper, lower, upper, lower, upper, lower);
}

// `sum` plus the product of every word and its factor.
FASTREC_TARGET_KERNEL
inline __m512i add_products(__m512i sum, __m512i words,
                            const std::uint64_t* factors) noexcept {
  const __m512i by = _mm512_load_si512(factors);
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(words, by, 0x00),
                                   _mm512_clmulepi64_epi128(words, by, 0x11), sum,
                                   kXorOfThree);
}

FASTREC_TARGET_KERNEL
inline __m128i sum_of_lanes(__m512i all) noexcept {
  const __m128i front = _mm_xor_si128(_mm512_extracti32x4_epi32(all, 0),
                                      _mm512_extracti32x4_epi32(all, 1));
  const __m128i back = _mm_xor_si128(_mm512_extracti32x4_epi32(all, 2),
                                     _mm512_extracti32x4_epi32(all, 3));
  return _mm_xor_si128(front, back);
}

class Products {
 public:
  static constexpr std::size_t kWords = 8;

  // Multiplies the words at `next` except the first `n_before`. Adds `state` to the
  // first of them.
  FASTREC_TARGET_KERNEL
  Products(std::uint64_t state, const std::uint8_t* next, std::size_t n_before,
           const std::uint64_t* factors) noexcept {
    const auto masked = static_cast<__mmask8>(0xffu << n_before);
    const auto first = static_cast<__mmask8>(1u << n_before);
    const __m512i words =
        _mm512_xor_si512(_mm512_maskz_loadu_epi64(masked, next),
                         _mm512_maskz_set1_epi64(first, static_cast<long long>(state)));
    sum_ = add_products(_mm512_setzero_si512(), words, factors);
  }

  FASTREC_TARGET_KERNEL
  void add(const std::uint8_t* next, const std::uint64_t* factors) noexcept {
    sum_ = add_products(sum_, _mm512_loadu_si512(next), factors);
  }

  FASTREC_TARGET_KERNEL
  __m128i sum() const noexcept { return sum_of_lanes(sum_); }

 private:
  __m512i sum_;
};

// `sum` shifted by `by`, plus `next`.
FASTREC_TARGET_KERNEL
inline __m512i fold_into(__m512i next, __m512i sum, __m512i by) noexcept {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, by, 0x00),
                                   _mm512_clmulepi64_epi128(sum, by, 0x11), next,
                                   kXorOfThree);
}

// Processes steps of kBytes, and copies them to a target if kCopies.
template <bool kCopies>
class Vectors {
 public:
  static constexpr std::size_t kBytes = 256;
  static constexpr std::size_t kPartWords = 3;

  FASTREC_TARGET_KERNEL
  Vectors(std::uint32_t state, const std::uint8_t* next, std::uint8_t* target) noexcept
      : first_(_mm512_xor_si512(
            load(next, target, 0),
            _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))))),
        second_(load(next, target, 64)),
        third_(load(next, target, 128)),
        fourth_(load(next, target, 192)),
        by_(factors(kBytes / 8)) {}

  FASTREC_TARGET_KERNEL
  void fold(const std::uint8_t* next, std::uint8_t* target) noexcept {
    first_ = fold_into(load(next, target, 0), first_, by_);
    second_ = fold_into(load(next, target, 64), second_, by_);
    third_ = fold_into(load(next, target, 128), third_, by_);
    fourth_ = fold_into(load(next, target, 192), fourth_, by_);
  }

  FASTREC_TARGET_KERNEL
  std::uint64_t remainder() const noexcept {
    const __m512i half = fold_into(second_, first_, factors(8));
    const __m512i other = fold_into(fourth_, third_, factors(8));
    const __m512i all = fold_into(other, half, factors(16));
    return remainder_of(sum_of_lanes(
        add_products(_mm512_setzero_si512(), all, kShortFactors.end() - 8)));
  }

 private:
  FASTREC_TARGET_KERNEL
  static __m512i load(const std::uint8_t* next, [[maybe_unused]] std::uint8_t* target,
                      std::size_t at) noexcept {
    const __m512i words = _mm512_loadu_si512(next + at);
    if constexpr (kCopies) _mm512_storeu_si512(target + at, words);
    return words;
  }

  __m512i first_;
  __m512i second_;
  __m512i third_;
  __m512i fourth_;
  __m512i by_;
};

struct Kernel : WordKernel {
  FASTREC_TARGET_KERNEL
  static std::uint32_t extend(std::uint32_t crc, Bytes data) noexcept {
    std::uint32_t state = ~crc;
    const Bytes rest = sum_stretches<Vectors<false>>(&state, data, kMinSteps);
    return ~(rest.size() < kMinShortBytes
                 ? sum_words(state, rest, data.size() - rest.size())
                 : sum_short<Products>(state, rest));
  }
};

}  // namespace

FASTREC_TARGET_KERNEL
std::uint32_t extend_avx512(std::uint32_t crc, Bytes data) noexcept {
  return Kernel::extend(crc, data);
}

FASTREC_TARGET_KERNEL
std::uint32_t copy_avx512(std::uint32_t crc, Bytes source,
                          std::uint8_t* target) noexcept {
  return copy_vectors<Vectors<true>, Kernel>(crc, source, target);
}

FASTREC_TARGET_KERNEL
std::size_t count_intact_avx512(const std::uint8_t* frame,
                                std::span<const std::uint64_t> lengths) noexcept {
  return count_intact<Kernel>(frame, lengths);
}

}  // namespace fastrec::kernels

#endif
