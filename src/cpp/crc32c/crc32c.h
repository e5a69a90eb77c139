// Crc32c: bytes -> CRC-32C (Castagnoli, RFC 3720), by the best kernel for this CPU.
//
// Tests, fuzzers and benchmarks run every kernel of the table. All kernels return the
// same result for every input and never read outside of it.
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
  // Returns the checksum of `data` appended to the bytes with checksum `crc`; 0 for
  // none.
  std::uint32_t (*extend)(std::uint32_t crc, Bytes data) noexcept;
  // Copies `source` to `target` and extends `crc` by the copied bytes. Reads every byte
  // of `source` once, so another process may modify it concurrently.
  std::uint32_t (*copy)(std::uint32_t crc, Bytes source, std::uint8_t* target) noexcept;
  // Counts the intact frames before the first damaged one. The frames are contiguous
  // from `frame` on, all of their bytes are readable, and the payload of frame i must
  // have lengths[i] bytes:
  //
  //   length, 8 bytes | its masked checksum | payload | its masked checksum
  std::size_t (*count_intact)(const std::uint8_t* frame,
                              std::span<const std::uint64_t> lengths) noexcept;
};

// The kernels that this CPU supports, best first; the last one is portable.
std::span<const Crc32cKernel> crc32c_kernels() noexcept;

// The best kernel that active_isa() allows, selected at the first call.
const Crc32cKernel& crc32c_kernel();

inline std::uint32_t crc32c(Bytes data) { return crc32c_kernel().extend(0, data); }

// Stored checksums are masked, because the CRC of a message followed by its own CRC is
// a constant.
inline constexpr std::uint32_t kCrc32cMaskDelta = 0xa282ead8;

constexpr std::uint32_t crc32c_mask(std::uint32_t crc) noexcept {
  return std::rotr(crc, 15) + kCrc32cMaskDelta;
}

}  // namespace fastrec
