// PackedKernels: the implementations of packed.h, one source file each.
//
// Every file is compiled for the baseline CPU; only functions marked FASTREC_TARGET use
// more. crc32c/kernels.h explains why.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/packed.h"

namespace fastrec::kernels {

DecodeVarints<std::int64_t> decode_int64_portable;
DecodeVarints<std::int32_t> decode_int32_portable;
std::size_t count_portable(Bytes packed) noexcept;
DecodeVarintList decode_list_portable;

#if defined(__x86_64__)
DecodeVarints<std::int64_t> decode_int64_avx2;
DecodeVarints<std::int32_t> decode_int32_avx2;
std::size_t count_avx2(Bytes packed) noexcept;
DecodeVarintList decode_list_avx2;

DecodeVarints<std::int64_t> decode_int64_avx512;
DecodeVarints<std::int32_t> decode_int32_avx512;
std::size_t count_avx512(Bytes packed) noexcept;
DecodeVarintList decode_list_avx512;
#endif

#if defined(__aarch64__)
DecodeVarints<std::int64_t> decode_int64_arm64;
DecodeVarints<std::int32_t> decode_int32_arm64;
std::size_t count_arm64(Bytes packed) noexcept;
DecodeVarintList decode_list_arm64;
#endif

// The fallback of all kernels, for the end of the input and for invalid varints.
inline const std::uint8_t* decode_portable(Bytes packed, std::size_t count,
                                           std::int64_t* values, Errc* errc) noexcept {
  return decode_int64_portable(packed, count, values, errc);
}
inline const std::uint8_t* decode_portable(Bytes packed, std::size_t count,
                                           std::int32_t* values, Errc* errc) noexcept {
  return decode_int32_portable(packed, count, values, errc);
}

}  // namespace fastrec::kernels
