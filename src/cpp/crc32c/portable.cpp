// Slicing by 8: eight independent table lookups per 8 bytes.
//
// Source: M. Kounavis and F. Berry, "A Systematic Approach to Building High
// Performance Software-Based CRC Generators", ISCC 2005.

#include "crc32c/kernels.h"

#define FASTREC_TARGET_KERNEL

#include "crc32c/intact.h"

namespace fastrec::kernels {
namespace {

using Table = std::array<std::uint32_t, 256>;

// kTables[n][byte] is the remainder of `byte` followed by n zero bytes.
constexpr auto kTables = [] {
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (Table& table : tables) {
      for (int bit = 0; bit < 8; ++bit) remainder = times_x(remainder);
      table[byte] = remainder;
    }
  }
  return tables;
}();

struct Kernel {
  static std::uint32_t extend(std::uint32_t crc, Bytes data) noexcept {
    return extend_portable(crc, data);
  }
  static std::uint32_t crc_of_word(std::uint64_t word) noexcept {
    std::uint8_t bytes[8];
    store_le(bytes, word);
    return extend_portable(0, bytes);
  }
};

}  // namespace

std::uint32_t extend_portable(std::uint32_t crc, Bytes data) noexcept {
  std::uint32_t state = ~crc;
  const std::uint8_t* next = data.data();
  std::size_t left = data.size();
  for (; left >= 8; next += 8, left -= 8) {
    // Only the first half depends on the state.
    const std::uint32_t first = load_le<std::uint32_t>(next) ^ state;
    const std::uint32_t second = load_le<std::uint32_t>(next + 4);
    const std::uint32_t ahead =
        kTables[3][second & 0xff] ^ kTables[2][(second >> 8) & 0xff] ^
        kTables[1][(second >> 16) & 0xff] ^ kTables[0][second >> 24];
    state = ahead ^ kTables[7][first & 0xff] ^ kTables[6][(first >> 8) & 0xff] ^
            kTables[5][(first >> 16) & 0xff] ^ kTables[4][first >> 24];
  }
  for (; left > 0; ++next, --left) {
    state = kTables[0][(state ^ *next) & 0xff] ^ (state >> 8);
  }
  return ~state;
}

std::uint32_t copy_portable(std::uint32_t crc, Bytes source,
                            std::uint8_t* target) noexcept {
  return copy_in_pieces(extend_portable, crc, source, target);
}

std::size_t count_intact_portable(const std::uint8_t* frame,
                                  std::span<const std::uint64_t> lengths) noexcept {
  return count_intact<Kernel>(frame, lengths);
}

}  // namespace fastrec::kernels
