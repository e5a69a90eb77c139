// Carry-less products of 256 bits and the CRC instruction of SSE4.2, side by side.
//
// They are different parts of the CPU, so a message is cut into stretches that keep
// both busy: of every 112 bytes the vectors take 64 and the instruction 48.
//
//   |     v, 64 n bytes     | a, 16 n bytes | b, 16 n bytes | c, 16 n bytes |
//
// A vector is moved past the bytes that are folded into it by two products, one for
// each word of a lane. These come out shifted by x, too, and a factor of 32 bits in the
// lower half of a word stands for itself times x^32, so kJoinFactors fits as it is.
//
// Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel 2009 (folding); P. Cawley, "Faster CRC32-C on x86",
// 2022 (both side by side).

#include "crc32c/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>

#define FASTREC_TARGET_VPCLMUL FASTREC_TARGET("avx2,sse4.2,pclmul,vpclmulqdq")

namespace fastrec::kernels {
namespace {

constexpr std::size_t kVectorBytes = 64;  // of a step: two vectors
constexpr std::size_t kPartWords = 2;     // of a step, in each part
constexpr std::size_t kStepBytes =
    kVectorBytes + 3 * kPartWords * sizeof(std::uint64_t);

// A join moves the vectors past all three parts. A stretch of 19 KB makes it cheap.
constexpr std::size_t kMostSteps = 2 * kMaxPartWords / (3 * kPartWords);

// For fewer, sse42.cpp is as fast.
constexpr std::size_t kFewestSteps = 4;

// What moves both words of every lane by so many words.
FASTREC_TARGET_VPCLMUL
inline __m256i factors(std::size_t words) noexcept {
  const long long upper = kJoinFactors[words];
  const long long lower = kJoinFactors[words + 1];
  return _mm256_set_epi64x(upper, lower, upper, lower);
}

// `sum`, moved by `by`, and `next`.
FASTREC_TARGET_VPCLMUL
inline __m256i fold(__m256i sum, __m256i by, __m256i next) noexcept {
  const __m256i lower = _mm256_clmulepi64_epi128(sum, by, 0x00);
  const __m256i upper = _mm256_clmulepi64_epi128(sum, by, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(lower, upper), next);
}

// The remainder of two vectors, one after the other.
FASTREC_TARGET_VPCLMUL
inline std::uint64_t remainder_of(__m256i first, __m256i second) noexcept {
  const __m256i both = fold(first, factors(4), second);
  const __m256i swapped = _mm256_permute2x128_si256(both, both, 0x01);
  const __m128i sum = _mm256_extracti128_si256(fold(both, factors(2), swapped), 0);
  const auto word = [](long long value) { return static_cast<std::uint64_t>(value); };
  return _mm_crc32_u64(_mm_crc32_u64(0, word(_mm_cvtsi128_si64(sum))),
                       word(_mm_extract_epi64(sum, 1)));
}

// `remainder`, moved by so many words, once the CRC instruction has reduced it.
FASTREC_TARGET_VPCLMUL
inline __m128i moved(std::uint64_t remainder, std::size_t words) noexcept {
  return _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(remainder)),
                              _mm_cvtsi64_si128(kJoinFactors[words]), 0x00);
}

// The remainder of a stretch of `n_steps` steps after that of what came before it.
FASTREC_TARGET_VPCLMUL
inline std::uint32_t sum_stretch(std::uint32_t state, const std::uint8_t* next,
                                 std::size_t n_steps) noexcept {
  const auto* vectors = reinterpret_cast<const __m256i*>(next);
  __m256i first = _mm256_xor_si256(
      _mm256_loadu_si256(vectors),
      _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m256i second = _mm256_loadu_si256(vectors + 1);
  const __m256i by = factors(kVectorBytes / 8);

  const std::size_t words = kPartWords * n_steps;
  const std::uint8_t* part = next + kVectorBytes * n_steps;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
  for (std::size_t step = 0;; ++step) {
    for (std::size_t word = 0; word < kPartWords; ++word, part += 8) {
      a = _mm_crc32_u64(a, load_le<std::uint64_t>(part));
      b = _mm_crc32_u64(b, load_le<std::uint64_t>(part + 8 * words));
      c = _mm_crc32_u64(c, load_le<std::uint64_t>(part + 16 * words));
    }
    if (step + 1 == n_steps) break;
    vectors += 2;
    first = fold(first, by, _mm256_loadu_si256(vectors));
    second = fold(second, by, _mm256_loadu_si256(vectors + 1));
  }
  const __m128i sum = _mm_xor_si128(
      _mm_xor_si128(moved(remainder_of(first, second), 3 * words), moved(a, 2 * words)),
      moved(b, words));
  return static_cast<std::uint32_t>(
      c ^ _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(sum))));
}

}  // namespace

FASTREC_TARGET_VPCLMUL
std::uint32_t extend_vpclmul(std::uint32_t crc, Bytes data) noexcept {
  std::uint32_t state = ~crc;
  Bytes rest = data;
  while (rest.size() >= kFewestSteps * kStepBytes) {
    const std::size_t n_steps = std::min(rest.size() / kStepBytes, kMostSteps);
    state = sum_stretch(state, rest.data(), n_steps);
    rest = rest.subspan(n_steps * kStepBytes);
  }
  return extend_sse42(~state, rest);
}

}  // namespace fastrec::kernels

#endif
