// Pack: integers -> minimal varints, by the best kernel for this CPU.
//
// Tests run every kernel of the table. All kernels store the same bytes for every
// input, read each integer once, and write nothing outside of the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cpu.h"
#include "wire/field_writer.h"

namespace fastrec {

// The bytes of output that pack() may overwrite for `n` integers.
constexpr std::size_t pack_room(std::size_t n) noexcept {
  return kMaxVarintBytes * n + 64;
}

struct PackKernel {
  const char* name;
  Isa isa;
  // Stores the `n` unaligned int64 at `values` as varints at `out`. Returns their end.
  std::uint8_t* (*pack)(const std::uint8_t* values, std::size_t n,
                        std::uint8_t* out) noexcept;
  // Stores the size of each varint, and its bytes in a word, lowest byte first. If the
  // varint has more than 8 bytes, stores the integer instead.
  void (*spread)(const std::uint8_t* values, std::size_t n, std::uint64_t* words,
                 std::uint8_t* sizes) noexcept;
};

// The kernels that this CPU supports, best first; the last one is portable.
std::span<const PackKernel> pack_kernels() noexcept;

// The best kernel that active_isa() allows, selected at the first call.
const PackKernel& pack_kernel();

namespace kernels {
extern const PackKernel kPackAvx512, kPackAvx2;  // x86-64 only
}  // namespace kernels

}  // namespace fastrec
