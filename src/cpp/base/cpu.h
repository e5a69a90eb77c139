// Cpu: the instruction sets that this process may use.
//
// An Isa is a level; each level includes the lower levels of its architecture. A kernel
// names the level it needs, and tables of kernels list the best first. FASTREC_ISA
// ("portable", "sse42", "avx2", "vpclmul", "avx512", "arm64") lowers the level of the
// process, so that every level can be tested and measured on one machine.
//
// A level is supported if the CPU has the instructions and the operating system saves
// the registers they use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/names.h"

namespace fastrec {

enum class Isa : std::uint8_t {
  kPortable,
  kSse42,    // x86-64: SSE4.2 with CRC32, and PCLMULQDQ
  kAvx2,     // also AVX2, BMI1, POPCNT, and BMI2 with a fast PEXT
  kVpclmul,  // also VPCLMULQDQ, in vectors of 256 bits
  kAvx512,   // also AVX-512 F, BW, CD, VBMI and VBMI2
  kArm64,    // AArch64 with the CRC32 extension; NEON is always present
};

template <>
struct Names<Isa> {
  static constexpr const char* kAll[] = {"portable", "sse42",  "avx2",
                                         "vpclmul",  "avx512", "arm64"};
};

// The levels that this build and this CPU support, best first; never empty.
std::span<const Isa> supported_isas() noexcept;

// The level that FASTREC_ISA names, or the best supported one if it is not set. Read
// once, at the first call.
//
// Throws std::invalid_argument if FASTREC_ISA names an unsupported level, so that a
// benchmark cannot measure a different one by mistake.
Isa active_isa();

// The kernels that need at most `isa`, of a table of `all`, best first.
template <typename Kernel, std::size_t n>
std::span<const Kernel> kernels_up_to(Isa isa, const Kernel (&all)[n]) noexcept {
  std::span<const Kernel> kernels(all);
  while (kernels.front().isa > isa) kernels = kernels.subspan(1);
  return kernels;
}

}  // namespace fastrec

#define FASTREC_TARGET(features) __attribute__((target(features)))
