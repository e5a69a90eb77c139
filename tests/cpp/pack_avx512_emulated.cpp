#include "pack_avx512_emulated.h"

#include <algorithm>

#include "avx512_emulation.h"

// Compiles the same source again, in another namespace and for any CPU.
#undef FASTREC_TARGET
#define FASTREC_TARGET(features)
#define FASTREC_EMULATE_AVX512
#define kernels emulated_kernels

namespace fastrec::emulated_kernels {
extern const PackKernel kPackAvx512;
const PackKernel& kPackAvx2 = pack_kernels().back();
}  // namespace fastrec::emulated_kernels

#include "wire/pack_avx512.cpp"

namespace fastrec::testing {

PackKernel emulated_avx512_pack() {
  PackKernel kernel = emulated_kernels::kPackAvx512;
  kernel.name = "avx512_emulated";
  return kernel;
}

}  // namespace fastrec::testing
