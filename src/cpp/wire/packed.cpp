#include "wire/packed.h"

#include <algorithm>

#include "wire/packed_kernels.h"

namespace fastrec {
namespace {

// Best first.
constexpr VarintKernel kKernels[] = {
#if defined(__x86_64__)
    {"avx512", Isa::kAvx512, kernels::decode_int64_avx512, kernels::decode_int32_avx512,
     kernels::count_avx512, kernels::decode_list_avx512},
    {"avx2", Isa::kAvx2, kernels::decode_int64_avx2, kernels::decode_int32_avx2,
     kernels::count_avx2, kernels::decode_list_avx2},
#endif
#if defined(__aarch64__)
    {"arm64", Isa::kArm64, kernels::decode_int64_arm64, kernels::decode_int32_arm64,
     kernels::count_arm64, kernels::decode_list_arm64},
#endif
    {"portable", Isa::kPortable, kernels::decode_int64_portable,
     kernels::decode_int32_portable, kernels::count_portable,
     kernels::decode_list_portable},
};

// A level includes the levels below it, so the supported kernels are the end of the
// table.
std::span<const VarintKernel> kernels_up_to(Isa isa) noexcept {
  return {std::ranges::find_if(kKernels, [isa](auto& k) { return k.isa <= isa; }),
          std::end(kKernels)};
}

}  // namespace

std::span<const VarintKernel> varint_kernels() noexcept {
  return kernels_up_to(supported_isas().front());
}

const VarintKernel& best_varint_kernel() { return kernels_up_to(active_isa()).front(); }

}  // namespace fastrec
