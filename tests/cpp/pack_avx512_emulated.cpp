#include "pack_avx512_emulated.h"

#include <algorithm>

#include "avx512_emulation.h"

// Compiles the same source again, in another namespace and for any CPU.
#undef FASTREC_TARGET
#define FASTREC_TARGET(features)
#define FASTREC_EMULATE_AVX512
#define kernels emulated_kernels

namespace fastrec::emulated_kernels {

std::uint8_t* pack_avx2(const std::uint8_t* values, std::size_t n,
                        std::uint8_t* out) noexcept {
  return pack_kernels().back().pack(values, n, out);
}

}  // namespace fastrec::emulated_kernels

#include "wire/pack_avx512.cpp"

namespace fastrec::testing {

PackKernel emulated_avx512_pack() {
  return {"avx512_emulated", Isa::kPortable, emulated_kernels::pack_avx512,
          emulated_kernels::spread_avx512};
}

}  // namespace fastrec::testing
