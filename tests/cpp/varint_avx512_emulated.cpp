#include "varint_avx512_emulated.h"

#include <algorithm>
#include <array>

#include "avx512_emulation.h"

// Compiles the same source again, in another namespace and for any CPU.
#undef FASTREC_TARGET
#define FASTREC_TARGET(features)
#define FASTREC_EMULATE_AVX512
#define kernels emulated_kernels

#include "wire/packed_avx512.cpp"

namespace fastrec::emulated_kernels {

const std::uint8_t* decode_int64_portable(Bytes packed, std::size_t count,
                                          std::int64_t* values, Errc* errc) noexcept {
  return varint_kernels().back().decode_int64(packed, count, values, errc);
}

const std::uint8_t* decode_int32_portable(Bytes packed, std::size_t count,
                                          std::int32_t* values, Errc* errc) noexcept {
  return varint_kernels().back().decode_int32(packed, count, values, errc);
}

}  // namespace fastrec::emulated_kernels

namespace fastrec::testing {

VarintKernel emulated_avx512() {
  return {"avx512_emulated",
          Isa::kPortable,
          emulated_kernels::decode_int64_avx512,
          emulated_kernels::decode_int32_avx512,
          emulated_kernels::count_avx512,
          emulated_kernels::decode_list_avx512};
}

}  // namespace fastrec::testing
