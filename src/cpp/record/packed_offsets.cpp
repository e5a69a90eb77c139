#include "record/packed_offsets.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace fastrec {
namespace {

// Sizes below this limit are computed without overflow.
constexpr std::uint64_t kMaxRecords = std::uint64_t{1} << 48;
constexpr unsigned kWordBits = 64;

// The base and the slope of a group of offsets.
struct Line {
  std::uint64_t base = 0;
  std::uint32_t slope = 0;

  explicit Line(std::span<const std::uint64_t> group) {
    const std::uint64_t first = group.front();
    if (group.size() > 1) {
      const std::uint64_t mean = (group.back() - first) / (group.size() - 1);
      constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
      slope = static_cast<std::uint32_t>(std::min(mean, kMax));
    }
    // Subtracts the most negative deviation, so that no residual is negative. Any
    // offsets, also decreasing ones, are restored, because this is modulo 2^64.
    std::int64_t lowest = 0;
    for (std::uint64_t i = 0; i < group.size(); ++i) {
      lowest =
          std::min(lowest, static_cast<std::int64_t>(group[i] - first - i * slope));
    }
    base = first + static_cast<std::uint64_t>(lowest);
  }

  std::uint64_t residual(std::uint64_t i, std::uint64_t offset) const noexcept {
    return offset - base - i * slope;
  }
};

}  // namespace

std::optional<std::uint64_t> PackedOffsets::size_of(std::uint64_t n_records,
                                                    unsigned width) noexcept {
  if (n_records >= kMaxRecords || width > kWordBits) return std::nullopt;
  const std::uint64_t n_groups = n_records / kGroup + 1;
  const std::uint64_t n_words = ((n_records + 1) * width + kWordBits - 1) / kWordBits;
  return 8 * (n_groups + (n_groups + 1) / 2 + n_words);
}

std::uint64_t PackedOffsets::operator[](std::uint64_t i) const noexcept {
  const std::uint64_t group = i / kGroup;
  const auto base = load_le<std::uint64_t>(bytes_ + 8 * group);
  const auto slope = load_le<std::uint32_t>(slopes() + 4 * group);
  const std::uint64_t on_line = base + i % kGroup * slope;
  if (width_ == 0) return on_line;
  const std::uint64_t bit = i * width_;
  const std::uint8_t* word = residuals() + bit / kWordBits * 8;
  const unsigned shift = bit % kWordBits;
  std::uint64_t residual = load_le<std::uint64_t>(word) >> shift;
  if (shift + width_ > kWordBits) {
    residual |= load_le<std::uint64_t>(word + 8) << (kWordBits - shift);
  }
  return on_line + (residual & (~std::uint64_t{0} >> (kWordBits - width_)));
}

Packed::Packed(std::span<const std::uint64_t> offsets) {
  constexpr std::size_t kGroup = PackedOffsets::kGroup;
  const std::uint64_t n_records = offsets.size() - 1;
  const std::size_t n_groups = n_records / kGroup + 1;
  const auto group_of = [&](std::size_t i) {
    return offsets.subspan(i * kGroup, std::min(kGroup, offsets.size() - i * kGroup));
  };
  std::vector<Line> lines;
  lines.reserve(n_groups);
  std::uint64_t all_bits = 0;
  for (std::size_t g = 0; g < n_groups; ++g) {
    const std::span<const std::uint64_t> group = group_of(g);
    const Line& line = lines.emplace_back(group);
    for (std::size_t i = 0; i < group.size(); ++i) {
      all_bits |= line.residual(i, group[i]);
    }
  }
  width = static_cast<unsigned>(std::bit_width(all_bits));
  words.resize(*PackedOffsets::size_of(n_records, width) / 8);
  auto* bytes = reinterpret_cast<std::uint8_t*>(words.data());
  std::uint8_t* slopes = bytes + 8 * n_groups;
  std::uint64_t* residuals = words.data() + n_groups + (n_groups + 1) / 2;
  for (std::size_t g = 0; g < n_groups; ++g) {
    store_le(bytes + 8 * g, lines[g].base);
    store_le(slopes + 4 * g, lines[g].slope);
    if (width == 0) continue;
    const std::span<const std::uint64_t> group = group_of(g);
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::uint64_t residual = lines[g].residual(i, group[i]);
      const std::uint64_t bit = (g * kGroup + i) * width;
      const unsigned shift = bit % kWordBits;
      residuals[bit / kWordBits] |= residual << shift;
      if (shift + width > kWordBits) {
        residuals[bit / kWordBits + 1] |= residual >> (kWordBits - shift);
      }
    }
  }
}

}  // namespace fastrec
