// Kernels: the implementations of crc32c.h, one source file each, and their arithmetic.
//
// Every file is compiled for the baseline CPU; only functions marked FASTREC_TARGET use
// more. Per-file flags such as -msse4.2 would also apply to every inline function that
// the file includes, and the linker may keep that copy for the whole program.
//
// A checksum is the remainder of a polynomial over GF(2) divided by P, stored
// bit-reflected: the highest bit of a word is the coefficient of x^0. Appending n zero
// bytes to a message multiplies its remainder by x^(8n) mod P. So a kernel processes
// three parts of a message in parallel, which hides the latency of the CRC instruction,
// and joins them by two multiplications:
//
//   |     a, n bytes     |     b, n bytes     |     c, n bytes     |
//   a * x^(16n)          + b * x^(8n)         + c                    mod P
//
// Source: RFC 3720, section 12.1 (the polynomial); V. Gopal et al., "Fast CRC
// Computation for iSCSI Polynomial Using CRC32 Instruction", Intel 2011 (the join).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "base/cpu.h"

namespace fastrec::kernels {

inline constexpr std::uint32_t kPolynomial = 0x82f63b78;  // P without its x^32

constexpr std::uint32_t times_x(std::uint32_t remainder) noexcept {
  return (remainder >> 1) ^ ((remainder & 1) != 0 ? kPolynomial : 0);
}

constexpr std::uint32_t divided_by_x(std::uint32_t remainder) noexcept {
  // P has a term x^0, whose bit is the highest.
  return (remainder >> 31) != 0 ? (remainder ^ kPolynomial) << 1 | 1 : remainder << 1;
}

// The maximum length of a part, in words of 8 bytes. Longer messages are split into
// several triples of parts; a join per 4 KiB part costs about 1 %.
inline constexpr std::size_t kMaxPartWords = 512;

// kJoinFactors[n] shifts a remainder by n words: x^(64n) / x^33 mod P. The divisor
// compensates for the instructions: the carry-less product of two reflected words is
// shifted by x, and the CRC instruction that reduces it multiplies by x^32.
inline constexpr auto kJoinFactors = [] {
  std::array<std::uint32_t, 2 * kMaxPartWords + 1> factors{};
  factors[1] = 1;  // x^31
  factors[0] = factors[1];
  for (int bit = 0; bit < 64; ++bit) factors[0] = divided_by_x(factors[0]);
  for (std::size_t n = 2; n < factors.size(); ++n) {
    std::uint32_t factor = factors[n - 1];
    for (int bit = 0; bit < 64; ++bit) factor = times_x(factor);
    factors[n] = factor;
  }
  return factors;
}();

// Builds one word from `state` and the last `left` (1 to 7) bytes of a message of at
// least 8 bytes. The CRC of zero bytes from state 0 is 0, so leading zeros in the word
// do not matter. With the CRC instruction crc(), the checksum of the message is
//
//   crc(0, last_word(...)) ^ state >> 8 * left
//
// The second term is the part of the 4-byte state that extends past `left` < 4 bytes.
// This avoids a branch for each low bit of the length, which is hard to predict.
inline std::uint64_t last_word(std::uint64_t state, const std::uint8_t* end,
                               std::size_t left) noexcept {
  const std::size_t done_bits = 8 * (8 - left);
  return ((load_le<std::uint64_t>(end - 8) >> done_bits) ^ state) << done_bits;
}

// Copies in pieces, and extends `crc` by each piece while it is in the L1 cache.
template <typename Extend>
std::uint32_t copy_in_pieces(Extend extend, std::uint32_t crc, Bytes source,
                             std::uint8_t* target) noexcept {
  constexpr std::size_t kPieceBytes = std::size_t{16} << 10;
  while (!source.empty()) {
    const std::size_t n = std::min(source.size(), kPieceBytes);
    std::memcpy(target, source.data(), n);
    crc = extend(crc, Bytes(target, n));
    target += n;
    source = source.subspan(n);
  }
  return crc;
}

#define FASTREC_CRC32C_KERNEL(isa)                                    \
  std::uint32_t extend_##isa(std::uint32_t crc, Bytes data) noexcept; \
  std::uint32_t copy_##isa(std::uint32_t crc, Bytes source,           \
                           std::uint8_t* target) noexcept;            \
  std::size_t count_intact_##isa(const std::uint8_t* frame,           \
                                 std::span<const std::uint64_t> lengths) noexcept

FASTREC_CRC32C_KERNEL(portable);
#if defined(__x86_64__)
FASTREC_CRC32C_KERNEL(sse42);
FASTREC_CRC32C_KERNEL(vpclmul);
FASTREC_CRC32C_KERNEL(avx512);
#endif
#if defined(__aarch64__)
FASTREC_CRC32C_KERNEL(arm64);
#endif

#undef FASTREC_CRC32C_KERNEL

}  // namespace fastrec::kernels
