// FieldWriter: functions that write the protobuf wire format, front to back.
//
// Every function returns the end of what it wrote; the caller provides the room. All
// encodings are minimal. All fields of an Example are length-delimited, with tags of
// one byte.
//
// Source: https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "wire/varint.h"

namespace fastrec {

constexpr std::uint64_t varint_size(std::uint64_t value) noexcept {
  // bits / 7, rounded up, for 1 to 64 bits, without a division.
  return (static_cast<unsigned>(std::bit_width(value | 1)) * 9 + 64) / 64;
}

// The size of a field with `content` bytes of content.
constexpr std::uint64_t field_size(std::uint64_t content) noexcept {
  return 1 + varint_size(content) + content;
}

inline std::uint8_t* store_varint(std::uint64_t value, std::uint8_t* out) noexcept {
  while (value >= 0x80) {
    *out++ = static_cast<std::uint8_t>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<std::uint8_t>(value);
  return out;
}

// The varint of `size` bytes, at most 8, in the low bytes of a word.
inline std::uint64_t spread_varint(std::uint64_t value, unsigned size) noexcept {
  // Moves eight groups of seven bits to one byte each, by halving.
  std::uint64_t spread = (value & 0x00fffffff0000000) << 4 | (value & 0x0fffffff);
  spread = (spread & 0x0fffc0000fffc000) << 2 | (spread & 0x00003fff00003fff);
  spread = (spread & 0x3f803f803f803f80) << 1 | (spread & 0x007f007f007f007f);
  // All bytes but the last have the top bit.
  const std::uint64_t more = (std::uint64_t{1} << 8 * (size - 1)) - 1;
  return spread | (more & kTopBits);
}

// Stores a varint of 9 or 10 bytes: 56 bits in 8 bytes, and 8 bits in 1 or 2 bytes.
inline void store_long_varint(std::uint64_t value, std::uint8_t* out) noexcept {
  store_le(out, spread_varint(value, 8) | kTopBits);
  out[8] = static_cast<std::uint8_t>(value >> 56);
  out[9] = 1;
}

// Stores the tag and the length of a length-delimited field.
inline std::uint8_t* open_field(unsigned field, std::uint64_t content,
                                std::uint8_t* out) noexcept {
  *out++ = static_cast<std::uint8_t>(field << 3 | 2);
  return store_varint(content, out);
}

inline std::uint8_t* store_raw(const void* data, std::size_t size,
                               std::uint8_t* out) noexcept {
  if (size != 0) std::memcpy(out, data, size);  // `data` may be null if `size` is 0
  return out + size;
}

inline std::uint8_t* store_string(unsigned field, Bytes bytes,
                                  std::uint8_t* out) noexcept {
  out = open_field(field, bytes.size(), out);
  return store_raw(bytes.data(), bytes.size(), out);
}

}  // namespace fastrec
