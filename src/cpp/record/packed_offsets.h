// PackedOffsets: the offsets of n records, and their end <-> about two bytes a record.
//
//   +--------------+----------------------+-----------------------------+
//   | bases        | slopes               | residuals                   |
//   | u64 le each  | u32 le each, padded  | `width` bits each, padded   |
//   |              | to 8 bytes           | to 8 bytes                  |
//   +--------------+----------------------+-----------------------------+
//
//   offset i = base[i / 64] + slope[i / 64] * (i % 64) + residual[i], modulo 2^64
//
// Records of equal size have no residuals. Any bytes of the right size are valid: they
// are offsets that may be wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/prefetch.h"

namespace fastrec {

class PackedOffsets {
 public:
  // `bytes` has size_of() bytes. It is not copied.
  PackedOffsets(const std::uint8_t* bytes, std::uint64_t n_records,
                unsigned width) noexcept
      : bytes_(bytes), n_records_(n_records), width_(width) {}

  // The size in bytes, a multiple of 8; nothing if no memory can hold it.
  static std::optional<std::uint64_t> size_of(std::uint64_t n_records,
                                              unsigned width) noexcept;

  // `i` is at most n_records.
  std::uint64_t operator[](std::uint64_t i) const noexcept;

  void prefetch(std::uint64_t i) const noexcept {
    fastrec::prefetch(bytes_ + i / kGroup * sizeof(std::uint64_t));
    fastrec::prefetch(residuals() + i * width_ / 64 * sizeof(std::uint64_t));
  }

 private:
  friend struct Packed;
  static constexpr std::uint64_t kGroup = 64;

  std::uint64_t n_groups() const noexcept { return n_records_ / kGroup + 1; }
  const std::uint8_t* slopes() const noexcept { return bytes_ + 8 * n_groups(); }
  const std::uint8_t* residuals() const noexcept {
    return slopes() + (n_groups() + 1) / 2 * 8;
  }

  const std::uint8_t* bytes_;
  std::uint64_t n_records_;
  unsigned width_;
};

// Offsets in packed form.
struct Packed {
  unsigned width = 0;
  std::vector<std::uint64_t> words;

  // `offsets` has at least one element.
  explicit Packed(std::span<const std::uint64_t> offsets);
};

}  // namespace fastrec
