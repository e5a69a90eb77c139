// Shuffles: the ends of four values of 1 to 3 bytes -> the byte shuffle that aligns
// them.
//
// Source: J. Plaisance, N. Kurz, D. Lemire, "Vectorized VByte Decoding", 2015 (the
// shuffle by lengths); the table here holds four values of each mask.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fastrec::kernels {

inline constexpr std::size_t kShuffleBits = 12;  // four values of 3 bytes
inline constexpr std::uint64_t kShuffleMask = (1u << kShuffleBits) - 1;

struct Shuffles {
  // By the low bits of a mask of ends: the lengths of four values, as digits in base 3.
  std::array<std::uint8_t, std::size_t{1} << kShuffleBits> indices{};
  // Moves each of four values to 4 bytes; 0x80 produces a zero.
  alignas(16) std::array<std::array<std::uint8_t, 16>, 81> bytes{};
};

inline constexpr Shuffles kShuffles = [] {
  Shuffles shuffles;
  for (std::size_t index = 0; index < shuffles.bytes.size(); ++index) {
    std::size_t ends = 0;
    std::size_t place = 0;
    std::size_t lengths = index;
    for (std::size_t value = 0; value < 4; ++value, lengths /= 3) {
      const std::size_t length = lengths % 3 + 1;
      for (std::size_t i = 0; i < 4; ++i) {
        shuffles.bytes[index][4 * value + i] =
            static_cast<std::uint8_t>(i < length ? place + i : 0x80);
      }
      place += length;
      ends |= std::size_t{1} << (place - 1);
    }
    // The bits after the fourth value do not matter.
    for (std::size_t rest = 0; rest < std::size_t{1} << (kShuffleBits - place);
         ++rest) {
      shuffles.indices[ends | rest << place] = static_cast<std::uint8_t>(index);
    }
  }
  return shuffles;
}();

// Whether all values of a window have at most 3 bytes. `continuing` is the mask of
// bytes with a top bit; a value of 4 bytes has three of them.
inline bool can_shuffle(std::uint64_t continuing) noexcept {
  return (continuing & continuing >> 1 & continuing >> 2) == 0;
}

}  // namespace fastrec::kernels
