// Packed: packed varints -> their number, and the integers, by the best kernel for this
// CPU.
//
// Tests, fuzzers and benchmarks run every kernel of the table. All kernels return the
// same results for every input, never read outside of it, and never write past the
// requested values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/error.h"
#include "wire/varint.h"

namespace fastrec {

// Decodes the first `count` varints of `packed` into `values`. Returns their end. For
// an invalid varint, returns nullptr and sets `*errc`: kVarintCut if `packed` is too
// short, kVarintTooLong, or kValueOutOfRange if the value does not fit an Int. Values
// after the invalid one are unspecified.
template <typename Int>
using DecodeVarints = const std::uint8_t*(Bytes packed, std::size_t count, Int* values,
                                          Errc* errc) noexcept;

// Decodes all varints of the `n_bytes` at `packed` into `values`. Returns their number,
// or kNotDecoded if the last one is truncated or one has more than 8 bytes. This is the
// fastest way to decode a short list, because it needs no pass to count the values. It
// loads and stores whole vectors, so it needs BytesWithSlack and room for n_bytes +
// kSpareValues values.
using DecodeVarintList = std::size_t(const std::uint8_t* packed, std::size_t n_bytes,
                                     std::int64_t* values) noexcept;

inline constexpr std::size_t kNotDecoded = static_cast<std::size_t>(-1);
inline constexpr std::size_t kSpareValues = 16;

struct VarintKernel {
  const char* name;
  Isa isa;
  DecodeVarints<std::int64_t>* decode_int64;
  DecodeVarints<std::int32_t>* decode_int32;
  // The number of varints that end in `packed`: of bytes without the top bit.
  std::size_t (*count)(Bytes packed) noexcept;
  DecodeVarintList* decode_list;

  template <typename Int>
  DecodeVarints<Int>* decode() const noexcept {
    if constexpr (sizeof(Int) == sizeof(std::int64_t)) {
      return decode_int64;
    } else {
      return decode_int32;
    }
  }
};

// One source file each. Every file is compiled for the baseline CPU; only functions
// marked FASTREC_TARGET use more. crc32c/kernels.h explains why.
namespace kernels {
extern const VarintKernel kAvx512, kAvx2;  // x86-64 only
extern const VarintKernel kArm64;          // AArch64 only
extern const VarintKernel kPortable;
}  // namespace kernels

// The kernels that this CPU supports, best first; the last one is portable.
std::span<const VarintKernel> varint_kernels() noexcept;

// The best kernel that active_isa() allows.
const VarintKernel& best_varint_kernel();

// The same, selected at the first call.
inline const VarintKernel& varint_kernel() {
  static const VarintKernel& kernel = best_varint_kernel();
  return kernel;
}

inline std::size_t count_varints(Bytes packed) {
  if (packed.size() == 1) return packed[0] < 0x80;  // one small value: the common case
  return varint_kernel().count(packed);
}

template <typename Int>
const std::uint8_t* decode_varints(Bytes packed, std::size_t count, Int* values,
                                   Errc* errc) {
  return varint_kernel().decode<Int>()(packed, count, values, errc);
}

}  // namespace fastrec
