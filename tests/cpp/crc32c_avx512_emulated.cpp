#include "crc32c_avx512_emulated.h"

#include <algorithm>
#include <array>

#include "avx512_emulation.h"

// Compiles the same source again, in another namespace and for any CPU.
#undef FASTREC_TARGET
#define FASTREC_TARGET(features)
#define FASTREC_EMULATE_AVX512
#define kernels emulated_kernels

#include "crc32c/avx512.cpp"

namespace fastrec::testing {

Crc32cKernel emulated_crc32c_avx512() {
  return {"avx512_emulated", Isa::kPortable, emulated_kernels::extend_avx512,
          emulated_kernels::copy_avx512, emulated_kernels::count_intact_avx512};
}

}  // namespace fastrec::testing
