// Packed: the bytes of packed varints -> how many there are, and the integers, by the
// best kernel this CPU has.
//
// The kernels are a table, best first, that tests, fuzzers and benchmarks walk. All of
// them give the same results for every input, never read outside of it, and never
// write past the values that were asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/error.h"
#include "wire/varint.h"

namespace fastrec {

// Decodes the first `count` varints of `packed` into `values`. Returns where they end,
// or nullptr with `*errc` set for the first that cannot be read: kVarintCut where
// `packed` holds fewer, kVarintTooLong, kValueOutOfRange where it does not fit an Int.
// Those before it have been written; what is in the places behind them is unspecified.
template <typename Int>
using DecodeVarints = const std::uint8_t*(Bytes packed, std::size_t count, Int* values,
                                          Errc* errc) noexcept;

// Decodes all varints of the `n_bytes` at `packed` into `values`. Returns how many, or
// kNotDecoded if the last one is cut or one has more than 8 bytes. This is the fastest
// way to read a list of a few values, whose number is not known: it needs no pass to
// count them, but room for n_bytes + kSpareValues of them, and bytes with slack
// (BytesWithSlack), because it loads and stores whole vectors.
using DecodeVarintList = std::size_t(const std::uint8_t* packed, std::size_t n_bytes,
                                     std::int64_t* values) noexcept;

inline constexpr std::size_t kNotDecoded = static_cast<std::size_t>(-1);
inline constexpr std::size_t kSpareValues = 16;

struct VarintKernel {
  const char* name;
  Isa isa;
  DecodeVarints<std::int64_t>* decode_int64;
  DecodeVarints<std::int32_t>* decode_int32;
  // How many varints end in `packed`: the bytes without a top bit.
  std::size_t (*count)(Bytes packed) noexcept;
  DecodeVarintList* decode_list;
};

// The kernels that this CPU can run, best first; the last one is portable.
std::span<const VarintKernel> varint_kernels() noexcept;

// The best kernel that active_isa() allows.
const VarintKernel& best_varint_kernel();

// The kernel in use, chosen at the first call.
inline const VarintKernel& varint_kernel() {
  static const VarintKernel& kernel = best_varint_kernel();
  return kernel;
}

inline std::size_t count_varints(Bytes packed) {
  if (packed.size() == 1) return packed[0] < 0x80;  // a list of one: the most frequent
  return varint_kernel().count(packed);
}

inline const std::uint8_t* decode_varints(Bytes packed, std::size_t count,
                                          std::int64_t* values, Errc* errc) {
  return varint_kernel().decode_int64(packed, count, values, errc);
}

inline const std::uint8_t* decode_varints(Bytes packed, std::size_t count,
                                          std::int32_t* values, Errc* errc) {
  return varint_kernel().decode_int32(packed, count, values, errc);
}

}  // namespace fastrec
