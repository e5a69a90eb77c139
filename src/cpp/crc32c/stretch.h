// Stretch: bytes -> their remainder, by carry-less products of vectors and by the CRC
// instruction of SSE4.2 in parallel. Shared by the VPCLMULQDQ kernels.
//
// The two use different execution ports, so a message is split into stretches that keep
// both busy: the vectors process the first part, and the instruction three more parts,
// as in sse42.cpp. A stretch of n steps:
//
//   |     v n bytes     | a, p n words | b, p n words | c, p n words |
//
// Folding shifts a vector by two products, one for each word of a lane. These products
// are also shifted by x, and a 32-bit factor in the lower half of a word represents
// itself times x^32, so kJoinFactors applies unchanged.
//
// The including file includes the intrinsics and defines FASTREC_TARGET_KERNEL, the
// target of its vectors.
//
// Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel 2009 (folding); P. Cawley, "Faster CRC32-C on x86",
// 2022 (both in parallel).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "crc32c/join.h"

namespace fastrec::kernels {

// Extends the remainder `state` by a stretch of `n_steps` steps. In each step,
// `Vectors` process kBytes and the CRC instruction kPartWords words of each part.
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
      _mm_xor_si128(shifted(vectors.remainder(), 3 * words), shifted(a, 2 * words));
  return static_cast<std::uint32_t>(c ^
                                    reduced(_mm_xor_si128(front, shifted(b, words))));
}

// Extends `*state` by the stretches of at least `min_steps` steps that `data` begins
// with, and returns the rest.
template <typename Vectors>
FASTREC_TARGET_KERNEL inline Bytes sum_stretches(std::uint32_t* state, Bytes data,
                                                 std::size_t min_steps) noexcept {
  constexpr std::size_t kStepBytes = Vectors::kBytes + 24 * Vectors::kPartWords;
  // A join shifts the vectors past all three parts. Longer stretches are not cheaper.
  constexpr std::size_t kMaxSteps = 2 * kMaxPartWords / (3 * Vectors::kPartWords);
  while (data.size() >= min_steps * kStepBytes) {
    const std::size_t n_steps = std::min(data.size() / kStepBytes, kMaxSteps);
    *state = sum_stretch<Vectors>(*state, data.data(), n_steps);
    data = data.subspan(n_steps * kStepBytes);
  }
  return data;
}

// See Crc32cKernel::copy. `Vectors` copy the bytes that they process; `Kernel`
// processes the rest.
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
