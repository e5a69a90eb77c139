// The CRC32 extension of AArch64, on three parts at a time if the CPU also has
// polynomial multiplication (PMULL) to join them.
//
// As in sse42.cpp, three parts hide the latency of the instruction. A CPU with CRC32
// but without PMULL, such as the Cortex-A72 of a Raspberry Pi 4, processes one part.

#include "crc32c/kernels.h"

#if defined(__aarch64__)

#include <arm_acle.h>
#include <arm_neon.h>

#include <algorithm>

#if defined(__linux__)
#include <sys/auxv.h>
#endif

// GCC and Clang name the same features differently.
#if defined(__clang__)
#define FASTREC_TARGET_CRC FASTREC_TARGET("crc")
#define FASTREC_TARGET_CRC_PMULL FASTREC_TARGET("crc,aes")
#else
#define FASTREC_TARGET_CRC FASTREC_TARGET("+crc")
#define FASTREC_TARGET_CRC_PMULL FASTREC_TARGET("+crc+crypto")
#endif

#define FASTREC_TARGET_KERNEL FASTREC_TARGET_CRC

#include "crc32c/intact.h"

namespace fastrec::kernels {
namespace {

// Below this size, a join costs more than the three parts gain.
constexpr std::size_t kMinInterleaved = 96;

// False before it is initialized, when the slower path returns the same results.
const bool kHasPmull = [] {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_PMULL) != 0;
#elif defined(__APPLE__)
  return true;  // every Apple CPU has it
#else
  return false;
#endif
}();

// The remainder of three parts of `words` words, from their remainders.
FASTREC_TARGET_CRC_PMULL
inline std::uint32_t join(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                          std::size_t words) noexcept {
  const poly128_t a_shifted = vmull_p64(a, kJoinFactors[2 * words]);
  const poly128_t b_shifted = vmull_p64(b, kJoinFactors[words]);
  // Two products of 32 by 32 bits: the upper halves are zero.
  const auto sum =
      static_cast<std::uint64_t>(a_shifted) ^ static_cast<std::uint64_t>(b_shifted);
  return c ^ __crc32cd(0, sum);
}

// Extends `*state` by the triples of parts that `data` begins with, and returns the
// rest.
FASTREC_TARGET_CRC_PMULL
Bytes sum_triples(std::uint32_t* state, Bytes data) noexcept {
  std::uint32_t a = *state;
  const std::uint8_t* next = data.data();
  std::size_t left = data.size();
  while (left >= kMinInterleaved) {
    const std::size_t words = std::min(left / 24, kMaxPartWords);
    const std::size_t part = 8 * words;
    std::uint32_t b = 0;
    std::uint32_t c = 0;
    for (const std::uint8_t* end = next + part; next != end; next += 8) {
      a = __crc32cd(a, load_le<std::uint64_t>(next));
      b = __crc32cd(b, load_le<std::uint64_t>(next + part));
      c = __crc32cd(c, load_le<std::uint64_t>(next + 2 * part));
    }
    a = join(a, b, c, words);
    next += 2 * part;
    left -= 3 * part;
  }
  *state = a;
  return {next, left};
}

struct Kernel {
  static std::uint32_t extend(std::uint32_t crc, Bytes data) noexcept {
    return extend_arm64(crc, data);
  }
  FASTREC_TARGET_CRC
  static std::uint32_t crc_of_word(std::uint64_t word) noexcept {
    return ~__crc32cd(0xffffffff, word);
  }
};

}  // namespace

FASTREC_TARGET_CRC
std::uint32_t extend_arm64(std::uint32_t crc, Bytes data) noexcept {
  std::uint32_t state = ~crc;
  Bytes rest = data;
  if (kHasPmull && data.size() >= kMinInterleaved) rest = sum_triples(&state, data);

  const std::uint8_t* next = rest.data();
  std::size_t left = rest.size();
  for (; left >= 8; next += 8, left -= 8) {
    state = __crc32cd(state, load_le<std::uint64_t>(next));
  }
  if (left > 0 && data.size() >= 8) {
    const std::uint64_t past_end = std::uint64_t{state} >> (8 * left);
    return ~(__crc32cd(0, last_word(state, next + left, left)) ^
             static_cast<std::uint32_t>(past_end));
  }

  if ((left & 4) != 0) {
    state = __crc32cw(state, load_le<std::uint32_t>(next));
    next += 4;
  }
  if ((left & 2) != 0) {
    state = __crc32ch(state, load_le<std::uint16_t>(next));
    next += 2;
  }
  if ((left & 1) != 0) state = __crc32cb(state, *next);
  return ~state;
}

std::uint32_t copy_arm64(std::uint32_t crc, Bytes source,
                         std::uint8_t* target) noexcept {
  return copy_in_pieces(extend_arm64, crc, source, target);
}

FASTREC_TARGET_CRC
std::size_t count_intact_arm64(const std::uint8_t* frame,
                               std::span<const std::uint64_t> lengths) noexcept {
  return count_intact<Kernel>(frame, lengths);
}

}  // namespace fastrec::kernels

#endif
