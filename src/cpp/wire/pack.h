// Pack: integers -> varints in the shortest form, by the best kernel this CPU has.
//
// The kernels are a table, best first, that tests walk. All of them store the same
// bytes for every input, read each integer once, and write nothing outside of the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cpu.h"
#include "wire/field_writer.h"

namespace fastrec {

// The room that pack() needs for `n` integers; it may write anything there.
constexpr std::size_t pack_room(std::size_t n) noexcept { return kVarintRoom * n + 64; }

struct PackKernel {
  const char* name;
  Isa isa;
  // Stores `n` int64 at `values`, as the machine has them and at any address, to `out`,
  // one varint after another. Returns their end.
  std::uint8_t* (*pack)(const std::uint8_t* values, std::size_t n,
                        std::uint8_t* out) noexcept;
  // The same with each varint apart: its size, and its bytes from the lowest byte of a
  // word on. A varint of more than 8 bytes does not fit; there the word is the integer.
  void (*spread)(const std::uint8_t* values, std::size_t n, std::uint64_t* words,
                 std::uint8_t* sizes) noexcept;
};

// The kernels that this CPU can run, best first; the last one is portable.
std::span<const PackKernel> pack_kernels() noexcept;

// The kernel in use: the best that active_isa() allows, chosen at the first call.
const PackKernel& pack_kernel();

#if defined(__x86_64__)
namespace kernels {

std::uint8_t* pack_avx2(const std::uint8_t* values, std::size_t n,
                        std::uint8_t* out) noexcept;
std::uint8_t* pack_avx512(const std::uint8_t* values, std::size_t n,
                          std::uint8_t* out) noexcept;
void spread_avx512(const std::uint8_t* values, std::size_t n, std::uint64_t* words,
                   std::uint8_t* sizes) noexcept;

}  // namespace kernels
#endif

}  // namespace fastrec
