#include "base/cpu.h"

#include <array>
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
// AMD before Zen 3 (family 19h) splits PDEP and PEXT into up to 250 micro-operations,
// and so does Hygon, whose CPUs are Zen 1.
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

// Each level requires every extension that its kernels use.
struct Isas {
  std::array<Isa, 5> all{};
  std::size_t n = 0;
};

Isas find_supported_isas() {
  Isas isas;
  const auto add_if = [&](Isa isa, bool is_supported) {
    if (is_supported) isas.all[isas.n++] = isa;
  };
#if defined(__x86_64__)
  // A static constructor may call this before the compiler's runtime has detected the
  // CPU.
  __builtin_cpu_init();
  const bool has_sse42 =
      __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
  // "avx2" and "avx512f" include that the system saves the wide registers.
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
  return isas;
}

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
  throw std::invalid_argument("FASTREC_ISA must name a supported instruction set (" +
                              names + "), got '" + std::string(forced) + "'");
}

}  // namespace

std::span<const Isa> supported_isas() noexcept {
  static const Isas supported = find_supported_isas();
  return std::span(supported.all).first(supported.n);
}

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

}  // namespace fastrec
