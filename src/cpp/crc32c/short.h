// Short: up to kMaxShortBytes bytes -> their remainder, without a chain of folds.
//
// Each word is multiplied by the factor that shifts it to the end of the message, and
// all products are added. The products are independent of each other.
//
//   | 1 to 8 bytes | 1 to n words, masked | n words | ... | n words |
//   CRC instruction  vectors of n words
//
// The CRC instruction processes the first bytes. Their remainder is added to the first
// word of the vectors.
//
// The including file includes the intrinsics and defines FASTREC_TARGET_KERNEL.
//
// Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel 2009.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "crc32c/join.h"

namespace fastrec::kernels {

inline constexpr std::size_t kMaxShortWords = 168;
inline constexpr std::size_t kMaxShortBytes = 8 * kMaxShortWords;

// The factors of the last words of a message: kShortFactors.end()[-1] belongs to the
// last word. A message ends with whole vectors, so all loads are aligned.
alignas(64) inline constexpr auto kShortFactors = [] {
  std::array<std::uint64_t, kMaxShortWords> factors{};
  for (std::size_t n = 0; n < factors.size(); ++n) {
    factors[factors.size() - 1 - n] = kJoinFactors[n];
  }
  return factors;
}();

// Extends the remainder `state` by `data`, of 9 to kMaxShortBytes bytes. `Products`
// adds the products of vectors of kWords words and their factors.
template <typename Products>
FASTREC_TARGET_KERNEL inline std::uint32_t sum_short(std::uint32_t state,
                                                     Bytes data) noexcept {
  const std::size_t n_first = (data.size() - 1) % 8 + 1;
  const std::size_t n_words = (data.size() - n_first) / 8;
  // As in last_word(): leading zeros do not matter.
  const std::uint64_t first = (load_le<std::uint64_t>(data.data()) ^ state)
                              << (64 - 8 * n_first);
  const std::uint64_t past_end =
      (std::uint64_t{state} >> (4 * n_first)) >> (4 * n_first);

  const std::size_t n_masked = (n_words - 1) % Products::kWords + 1;
  const std::size_t n_before = Products::kWords - n_masked;
  const std::uint8_t* next = data.data() + n_first - 8 * n_before;
  const std::uint64_t* factors =
      kShortFactors.data() + kShortFactors.size() - n_words - n_before;
  Products products(_mm_crc32_u64(0, first) ^ past_end, next, n_before, factors);
  for (const std::uint8_t* const end = data.data() + data.size();;) {
    next += 8 * Products::kWords;
    factors += Products::kWords;
    if (next == end) break;
    products.add(next, factors);
  }
  return static_cast<std::uint32_t>(remainder_of(products.sum()));
}

}  // namespace fastrec::kernels
