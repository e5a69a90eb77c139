// Cpu: which instruction sets this process may use.
//
// An Isa is a rung of a ladder; each rung includes those below it on the same
// architecture. A kernel names the rung it needs, and tables of kernels list the best
// first. FASTREC_ISA lowers the ladder for a whole process ("portable", "sse42",
// "avx2", "vpclmul", "avx512", "arm64"), so that every rung can be tested and measured
// on one machine.
//
// A rung counts only if the CPU has the instructions and the operating system saves
// the registers they use.
#pragma once

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
  kArm64,    // AArch64: the CRC32 extension; NEON is in all of them
};

template <>
struct Names<Isa> {
  static constexpr const char* kAll[] = {"portable", "sse42",  "avx2",
                                         "vpclmul",  "avx512", "arm64"};
};

// The rungs this build knows and this CPU can run, best first; never empty.
std::span<const Isa> supported_isas() noexcept;

// The best rung that FASTREC_ISA allows, or the best supported one without it.
//
// Throws std::invalid_argument if FASTREC_ISA names none of supported_isas(): a
// forced instruction set that quietly became another would make every measurement a
// lie. Read once, at the first call.
Isa active_isa();

}  // namespace fastrec

#define FASTREC_TARGET(features) __attribute__((target(features)))
