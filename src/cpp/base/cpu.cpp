#include "base/cpu.h"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstring>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace fastrec {
namespace {

#if defined(__x86_64__)
// Whether PDEP and PEXT are instructions of their own. AMD before Zen 3 (family 19h)
// takes them apart into as many as 250, and so does Hygon, whose CPUs are Zen 1.
bool has_fast_pext() noexcept {
  if (!__builtin_cpu_supports("bmi2")) return false;
  unsigned eax, ebx, ecx, edx;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return false;
  char vendor[13] = {};
  std::memcpy(vendor, &ebx, 4);
  std::memcpy(vendor + 4, &edx, 4);
  std::memcpy(vendor + 8, &ecx, 4);
  if (std::string_view(vendor) == "HygonGenuine") return false;
  if (std::string_view(vendor) != "AuthenticAMD") return true;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  const unsigned base_family = (eax >> 8) & 0xf;
  const unsigned more = base_family == 0xf ? (eax >> 20) & 0xff : 0;
  return base_family + more >= 0x19;
}
#endif

class Ladder {
 public:
  // Rungs are added best first. Each asks for everything that its kernels use, not
  // only for what gave it its name.
  Ladder() noexcept {
#if defined(__x86_64__)
    // The answers are filled in by a constructor of the compiler's runtime, which may
    // run after a constructor that calls this.
    __builtin_cpu_init();
    const bool has_sse42 =
        __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    // Those of AVX2 and AVX-512 also say that the system saves the wide registers.
    const bool has_avx2 = has_sse42 && __builtin_cpu_supports("avx2") &&
                          __builtin_cpu_supports("bmi") &&
                          __builtin_cpu_supports("popcnt") && has_fast_pext();
    const bool has_vpclmul = has_avx2 && __builtin_cpu_supports("vpclmulqdq");
    add_if(Isa::kAvx512, has_vpclmul && __builtin_cpu_supports("avx512f") &&
                             __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512cd") &&
                             __builtin_cpu_supports("avx512vbmi") &&
                             __builtin_cpu_supports("avx512vbmi2"));
    add_if(Isa::kVpclmul, has_vpclmul);
    add_if(Isa::kAvx2, has_avx2);
    add_if(Isa::kSse42, has_sse42);
#elif defined(__aarch64__) && defined(__linux__)
    add_if(Isa::kArm64, (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0);
#elif defined(__aarch64__) && defined(__APPLE__)
    add_if(Isa::kArm64, true);  // every Apple CPU has the extension
#endif
    add_if(Isa::kPortable, true);
  }

  std::span<const Isa> rungs() const noexcept { return {rungs_.data(), count_}; }

 private:
  void add_if(Isa isa, bool supported) noexcept {
    if (supported) rungs_[count_++] = isa;
  }

  std::array<Isa, 8> rungs_{};
  std::size_t count_ = 0;
};

Isa choose() {
  const std::span<const Isa> supported = supported_isas();
  const char* forced = std::getenv("FASTREC_ISA");
  if (forced == nullptr) return supported.front();

  std::string names;
  for (const Isa isa : supported) {
    if (std::string_view(forced) == name_of(isa)) return isa;
    if (!names.empty()) names += ", ";
    names += name_of(isa);
  }
  throw std::invalid_argument("FASTREC_ISA='" + std::string(forced) +
                              "' names no instruction set that this CPU and this "
                              "build support: " +
                              names);
}

}  // namespace

std::span<const Isa> supported_isas() noexcept {
  static const Ladder ladder;
  return ladder.rungs();
}

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

}  // namespace fastrec
