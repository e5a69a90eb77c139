#include "varint_avx512_emulated.h"

#include <algorithm>
#include <array>

#include "avx512_emulation.h"

// Compiles the same source again, in another namespace and for any CPU.
#undef FASTREC_TARGET
#define FASTREC_TARGET(features)
#define FASTREC_EMULATE_AVX512
#define kernels emulated_kernels

namespace fastrec::emulated_kernels {
extern const VarintKernel kAvx512;
const VarintKernel& kPortable = varint_kernels().back();
}  // namespace fastrec::emulated_kernels

#include "wire/packed_avx512.cpp"

namespace fastrec::testing {

VarintKernel emulated_avx512() {
  VarintKernel kernel = emulated_kernels::kAvx512;
  kernel.name = "avx512_emulated";
  return kernel;
}

}  // namespace fastrec::testing
