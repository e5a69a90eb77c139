// Crc32c: bytes -> CRC-32C (Castagnoli), as RFC 3720 defines it, by the best kernel
// this CPU has.
//
// The kernels are a table, best first, that tests, fuzzers and benchmarks walk. All of
// them give the same results for every input and never read outside of it.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/cpu.h"

namespace fastrec {

struct Crc32cKernel {
  const char* name;
  Isa isa;
  // Extends `crc`, the checksum of what came before (0 for nothing), by `data`.
  std::uint32_t (*extend)(std::uint32_t crc, Bytes data) noexcept;
  // Copies `source` to `target`, and extends `crc` by the bytes that are there then:
  // every byte of `source` is read once. `source` may change meanwhile.
  std::uint32_t (*copy)(std::uint32_t crc, Bytes source, std::uint8_t* target) noexcept;
  // Counts the frames that are intact, up to the first that is not. They follow each
  // other from `frame` on, and frame i must have a payload of lengths[i] bytes:
  //
  //   length, 8 bytes | its masked checksum | payload | its masked checksum
  //
  // All bytes of all frames must be readable.
  std::size_t (*count_intact)(const std::uint8_t* frame,
                              std::span<const std::uint64_t> lengths) noexcept;
};

// The kernels that this CPU can run, best first; the last one is portable.
std::span<const Crc32cKernel> crc32c_kernels() noexcept;

// The kernel in use: the best that active_isa() allows, chosen at the first call.
const Crc32cKernel& crc32c_kernel();

inline std::uint32_t crc32c(Bytes data) { return crc32c_kernel().extend(0, data); }

// Stored checksums are masked, so that the checksum of data which itself holds
// checksums stays a good one.
inline constexpr std::uint32_t kCrc32cMaskDelta = 0xa282ead8;

constexpr std::uint32_t crc32c_mask(std::uint32_t crc) noexcept {
  return std::rotr(crc, 15) + kCrc32cMaskDelta;
}

}  // namespace fastrec
