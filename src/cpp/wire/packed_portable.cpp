// Decodes one value at a time, from words of 8 bytes.

#include <bit>
#include <utility>

#include "wire/packed.h"

namespace fastrec::kernels {
namespace {

template <typename Int>
inline const std::uint8_t* decode(Bytes packed, std::size_t count, Int* values,
                                  Errc* errc) noexcept {
  const std::uint8_t* p = packed.data();
  const std::uint8_t* end = p + packed.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits;
    // Up to 8 bytes without a branch per byte: the first clear top bit marks the end.
    const std::uint64_t word = end - p >= 8 ? load_le<std::uint64_t>(p) : kTopBits;
    const std::uint64_t ends = ~word & kTopBits;
    if (ends != 0) [[likely]] {
      const std::uint64_t mask = ends ^ (ends - 1);
      bits = without_top_bits(word & mask);
      p += std::countr_zero(ends) / 8 + 1;
    } else {
      p = read_varint(p, end, &bits, errc);
      if (p == nullptr) return nullptr;
    }
    const auto value = static_cast<std::int64_t>(bits);
    if (!std::in_range<Int>(value)) {
      *errc = Errc::kValueOutOfRange;
      return nullptr;
    }
    values[i] = static_cast<Int>(value);
  }
  return p;
}

std::size_t decode_list(const std::uint8_t* packed, std::size_t n_bytes,
                        std::int64_t* values) noexcept {
  const std::uint8_t* p = packed;
  const std::uint8_t* const end = packed + n_bytes;
  std::size_t n = 0;
  while (p < end) {
    const auto word = load_le<std::uint64_t>(p);
    const std::uint64_t ends = ~word & kTopBits;
    if (ends == 0) return kNotDecoded;
    values[n++] =
        static_cast<std::int64_t>(without_top_bits(word & (ends ^ (ends - 1))));
    p += std::countr_zero(ends) / 8 + 1;
  }
  return p == end ? n : kNotDecoded;
}

std::size_t count(Bytes packed) noexcept {
  const std::uint8_t* p = packed.data();
  const std::uint8_t* end = p + packed.size();
  std::size_t n = 0;
  for (; end - p >= 8; p += 8) {
    // Sums one bit of each byte in the highest byte of a product. std::popcount would
    // be a library call on the baseline CPU.
    const std::uint64_t ends = ~load_le<std::uint64_t>(p) & kTopBits;
    n += static_cast<std::size_t>(((ends >> 7) * 0x0101010101010101) >> 56);
  }
  for (; p < end; ++p) n += *p < 0x80;
  return n;
}

}  // namespace

constinit const VarintKernel kPortable = {
    "portable",           Isa::kPortable, decode<std::int64_t>,
    decode<std::int32_t>, count,          decode_list};

}  // namespace fastrec::kernels
