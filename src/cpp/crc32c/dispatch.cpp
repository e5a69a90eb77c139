#include <algorithm>

#include "crc32c/crc32c.h"
#include "crc32c/kernels.h"

namespace fastrec {
namespace {

// Best first.
#define FASTREC_CRC32C_KERNEL(name, isa)                          \
  {#name, Isa::isa, kernels::extend_##name, kernels::copy_##name, \
   kernels::count_intact_##name}
constexpr Crc32cKernel kKernels[] = {
#if defined(__x86_64__)
    FASTREC_CRC32C_KERNEL(avx512, kAvx512),
    FASTREC_CRC32C_KERNEL(vpclmul, kVpclmul),
    FASTREC_CRC32C_KERNEL(sse42, kSse42),
#endif
#if defined(__aarch64__)
    FASTREC_CRC32C_KERNEL(arm64, kArm64),
#endif
    FASTREC_CRC32C_KERNEL(portable, kPortable),
};
#undef FASTREC_CRC32C_KERNEL

}  // namespace

std::span<const Crc32cKernel> crc32c_kernels() noexcept {
  return kernels_up_to(supported_isas().front(), kKernels);
}

const Crc32cKernel& crc32c_kernel() {
  static const Crc32cKernel& kernel = kernels_up_to(active_isa(), kKernels).front();
  return kernel;
}

}  // namespace fastrec
