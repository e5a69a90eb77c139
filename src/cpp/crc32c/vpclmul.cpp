// Carry-less products of 256 bits, in parallel with the CRC instruction: of every 112
// bytes, the vectors process 64 and the instruction 48.

#include "crc32c/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FASTREC_TARGET_KERNEL FASTREC_TARGET("avx2,sse4.2,pclmul,vpclmulqdq")

#include "crc32c/intact.h"
#include "crc32c/stretch.h"

namespace fastrec::kernels {
namespace {

// Below this, sum_interleaved() is as fast.
constexpr std::size_t kMinSteps = 4;

// The factors that shift both words of every lane by `words`.
FASTREC_TARGET_KERNEL
inline __m256i factors(std::size_t words) noexcept {
  const long long upper = kJoinFactors[words];
  const long long lower = kJoinFactors[words + 1];
  return _mm256_set_epi64x(upper, lower, upper, lower);
}

// `sum` shifted by `by`, plus `next`.
FASTREC_TARGET_KERNEL
inline __m256i fold_into(__m256i next, __m256i sum, __m256i by) noexcept {
  const __m256i lower = _mm256_clmulepi64_epi128(sum, by, 0x00);
  const __m256i upper = _mm256_clmulepi64_epi128(sum, by, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(lower, upper), next);
}

// Processes steps of kBytes, and copies them to a target if kCopies.
template <bool kCopies>
class Vectors {
 public:
  static constexpr std::size_t kBytes = 64;
  static constexpr std::size_t kPartWords = 2;

  FASTREC_TARGET_KERNEL
  Vectors(std::uint32_t state, const std::uint8_t* next, std::uint8_t* target) noexcept
      : first_(_mm256_xor_si256(
            load(next, target, 0),
            _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))))),
        second_(load(next, target, 32)),
        by_(factors(kBytes / 8)) {}

  FASTREC_TARGET_KERNEL
  void fold(const std::uint8_t* next, std::uint8_t* target) noexcept {
    first_ = fold_into(load(next, target, 0), first_, by_);
    second_ = fold_into(load(next, target, 32), second_, by_);
  }

  FASTREC_TARGET_KERNEL
  std::uint64_t remainder() const noexcept {
    const __m256i both = fold_into(second_, first_, factors(4));
    const __m256i swapped = _mm256_permute2x128_si256(both, both, 0x01);
    return remainder_of(
        _mm256_extracti128_si256(fold_into(swapped, both, factors(2)), 0));
  }

 private:
  FASTREC_TARGET_KERNEL
  static __m256i load(const std::uint8_t* next, [[maybe_unused]] std::uint8_t* target,
                      std::size_t at) noexcept {
    const __m256i words =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next + at));
    if constexpr (kCopies)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + at), words);
    return words;
  }

  __m256i first_;
  __m256i second_;
  __m256i by_;
};

struct Kernel : WordKernel {
  FASTREC_TARGET_KERNEL
  static std::uint32_t extend(std::uint32_t crc, Bytes data) noexcept {
    std::uint32_t state = ~crc;
    const Bytes rest = sum_stretches<Vectors<false>>(&state, data, kMinSteps);
    return ~sum_interleaved(state, rest, data.size() - rest.size());
  }
};

}  // namespace

FASTREC_TARGET_KERNEL
std::uint32_t extend_vpclmul(std::uint32_t crc, Bytes data) noexcept {
  return Kernel::extend(crc, data);
}

FASTREC_TARGET_KERNEL
std::uint32_t copy_vpclmul(std::uint32_t crc, Bytes source,
                           std::uint8_t* target) noexcept {
  return copy_vectors<Vectors<true>, Kernel>(crc, source, target);
}

FASTREC_TARGET_KERNEL
std::size_t count_intact_vpclmul(const std::uint8_t* frame,
                                 std::span<const std::uint64_t> lengths) noexcept {
  return count_intact<Kernel>(frame, lengths);
}

}  // namespace fastrec::kernels

#endif
