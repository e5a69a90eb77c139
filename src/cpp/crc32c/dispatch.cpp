#include <algorithm>

#include "crc32c/crc32c.h"
#include "crc32c/kernels.h"

namespace fastrec {
namespace {

// Best first.
constexpr Crc32cKernel kKernels[] = {
#if defined(__x86_64__)
    {"avx512", Isa::kAvx512, kernels::extend_avx512},
    {"vpclmul", Isa::kVpclmul, kernels::extend_vpclmul},
    {"sse42", Isa::kSse42, kernels::extend_sse42},
#endif
#if defined(__aarch64__)
    {"arm64", Isa::kArm64, kernels::extend_arm64},
#endif
    {"portable", Isa::kPortable, kernels::extend_portable},
};

// The kernels that a CPU of this rung can run: a rung includes those below it, so they
// are the end of the table.
std::span<const Crc32cKernel> kernels_up_to(Isa isa) noexcept {
  return {std::ranges::find_if(kKernels, [isa](auto& k) { return k.isa <= isa; }),
          std::end(kKernels)};
}

}  // namespace

std::span<const Crc32cKernel> crc32c_kernels() noexcept {
  return kernels_up_to(supported_isas().front());
}

const Crc32cKernel& crc32c_kernel() {
  static const Crc32cKernel& kernel = kernels_up_to(active_isa()).front();
  return kernel;
}

}  // namespace fastrec
