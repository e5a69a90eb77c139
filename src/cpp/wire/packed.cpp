#include "wire/packed.h"

namespace fastrec {
namespace {

std::span<const VarintKernel> kernels_of(Isa isa) noexcept {
  // A local variable, because a static constructor may call this.
  static const VarintKernel all[] = {
#if defined(__x86_64__)
      kernels::kAvx512,
      kernels::kAvx2,
#elif defined(__aarch64__)
      kernels::kArm64,
#endif
      kernels::kPortable,
  };
  return kernels_up_to(isa, all);
}

}  // namespace

std::span<const VarintKernel> varint_kernels() noexcept {
  return kernels_of(supported_isas().front());
}

const VarintKernel& best_varint_kernel() { return kernels_of(active_isa()).front(); }

}  // namespace fastrec
