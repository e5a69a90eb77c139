// Stretch: bytes -> their remainder, by carry-less products of vectors and by the CRC
// instruction of SSE4.2, side by side. What the kernels with VPCLMULQDQ have in common.
//
// They are different parts of the CPU, so a message is cut into stretches that keep
// both busy: the vectors sum up the beginning, and the instruction three parts of the
// rest, as in sse42.cpp.
//
//   |     v n bytes     | a, p n words | b, p n words | c, p n words |
//
// A vector is moved past the bytes that are folded into it by two products, one for
// each word of a lane. These come out shifted by x, too, and a factor of 32 bits in the
// lower half of a word stands for itself times x^32, so kJoinFactors fits as it is.
//
// The including file has the intrinsics and defines FASTREC_TARGET_KERNEL, the target
// of its vectors.
//
// Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel 2009 (folding); P. Cawley, "Faster CRC32-C on x86",
// 2022 (both side by side).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "crc32c/join.h"

namespace fastrec::kernels {

// The remainder of a stretch of `n_steps` steps after that of what came before it.
// `Vectors` sum up kBytes in each step, and leave kPartWords words to each part.
template <typename Vectors>
FASTREC_TARGET_KERNEL inline std::uint32_t sum_stretch(std::uint32_t state,
                                                       const std::uint8_t* next,
                                                       std::size_t n_steps) noexcept {
  Vectors vectors(state, next, nullptr);
  const std::size_t words = Vectors::kPartWords * n_steps;
  const std::uint8_t* part = next + Vectors::kBytes * n_steps;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
  for (std::size_t step = 0;; ++step) {
    for (std::size_t word = 0; word < Vectors::kPartWords; ++word, part += 8) {
      a = _mm_crc32_u64(a, load_le<std::uint64_t>(part));
      b = _mm_crc32_u64(b, load_le<std::uint64_t>(part + 8 * words));
      c = _mm_crc32_u64(c, load_le<std::uint64_t>(part + 16 * words));
    }
    if (step + 1 == n_steps) break;
    next += Vectors::kBytes;
    vectors.fold(next, nullptr);
  }
  const __m128i front =
      _mm_xor_si128(moved(vectors.remainder(), 3 * words), moved(a, 2 * words));
  return static_cast<std::uint32_t>(c ^ reduced(_mm_xor_si128(front, moved(b, words))));
}

// Sums up as much of `data` as makes stretches of at least `fewest_steps`, and returns
// the rest of it.
template <typename Vectors>
FASTREC_TARGET_KERNEL inline Bytes sum_stretches(std::uint32_t* state, Bytes data,
                                                 std::size_t fewest_steps) noexcept {
  constexpr std::size_t kStepBytes = Vectors::kBytes + 24 * Vectors::kPartWords;
  // A join moves the vectors past all three parts. Longer stretches are not cheaper.
  constexpr std::size_t kMostSteps = 2 * kMaxPartWords / (3 * Vectors::kPartWords);
  while (data.size() >= fewest_steps * kStepBytes) {
    const std::size_t n_steps = std::min(data.size() / kStepBytes, kMostSteps);
    *state = sum_stretch<Vectors>(*state, data.data(), n_steps);
    data = data.subspan(n_steps * kStepBytes);
  }
  return data;
}

// See Crc32cKernel::copy. `Vectors` copy what they sum up; `Kernel` sums up the rest.
template <typename Vectors, typename Kernel>
FASTREC_TARGET_KERNEL inline std::uint32_t copy_vectors(std::uint32_t crc, Bytes source,
                                                        std::uint8_t* target) noexcept {
  const std::size_t n_steps = source.size() / Vectors::kBytes;
  if (n_steps > 0) {
    const std::uint8_t* next = source.data();
    Vectors vectors(~crc, next, target);
    for (std::size_t step = 1; step < n_steps; ++step) {
      next += Vectors::kBytes;
      target += Vectors::kBytes;
      vectors.fold(next, target);
    }
    target += Vectors::kBytes;
    crc = ~static_cast<std::uint32_t>(vectors.remainder());
  }
  const Bytes rest = source.subspan(n_steps * Vectors::kBytes);
  if (rest.empty()) return crc;
  std::memcpy(target, rest.data(), rest.size());
  return Kernel::extend(crc, {target, rest.size()});
}

}  // namespace fastrec::kernels
