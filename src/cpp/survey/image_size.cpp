#include "survey/image_size.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "survey/format.h"

namespace fastrec {
namespace {

using namespace std::string_view_literals;

std::uint32_t big_endian(Bytes file, std::size_t offset, std::size_t n_bytes) noexcept {
  std::uint32_t value = 0;
  for (const std::uint8_t byte : file.subspan(offset, n_bytes)) {
    value = value << 8 | byte;
  }
  return value;
}

std::uint32_t little_endian(Bytes file, std::size_t offset,
                            std::size_t n_bytes) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = n_bytes; i-- > 0;) value = value << 8 | file[offset + i];
  return value;
}

// Whether a marker is a frame header: SOF0 to SOF15, which does not include the markers
// DHT (0xc4), JPG (0xc8) and DAC (0xcc).
bool is_frame(std::uint8_t marker) noexcept {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
         marker != 0xcc;
}

// A marker is 0xff, any number of times, and a code. Those with parameters continue:
//
//   | length, with these 2 bytes: 2 | parameters |
//   SOFn parameters: | precision: 1 | height: 2 | width: 2 | components: 1 | ...
std::optional<ImageSize> size_of_jpeg(Bytes file) noexcept {
  constexpr std::uint8_t kScan = 0xda, kEnd = 0xd9, kRestart = 0xd0, kTemporary = 0x01;
  std::size_t next = 2;
  while (true) {
    while (next < file.size() && file[next] != 0xff) ++next;
    while (next < file.size() && file[next] == 0xff) ++next;
    if (next == file.size()) return {};
    const std::uint8_t marker = file[next++];
    if (marker == kScan || marker == kEnd) return {};
    if (marker == 0 || marker == kTemporary ||
        (marker >= kRestart && marker < kRestart + 8)) {
      continue;
    }
    if (file.size() - next < 2) return {};
    const std::size_t length = big_endian(file, next, 2);
    if (length < 2 || length > file.size() - next) return {};
    if (is_frame(marker)) {
      if (length < 7) return {};
      const bool is_gray = length > 7 && file[next + 7] == 1;
      return ImageSize{big_endian(file, next + 5, 2), big_endian(file, next + 3, 2),
                       is_gray ? 1u : 3u};
    }
    next += length;
  }
}

std::optional<ImageSize> size_of_png(Bytes file) noexcept {
  if (file.size() < 26 || as_text(file).substr(12, 4) != "IHDR"sv) return {};
  // Bit 2 of the color type is alpha, and bit 1 color.
  const std::uint8_t color = file[25];
  return ImageSize{big_endian(file, 16, 4), big_endian(file, 20, 4),
                   color & 4   ? 4u
                   : color & 2 ? 3u
                               : 1u,
                   file[24] == 16 ? 16u : 8u};
}

// The first chunk, at byte 12: lossy, lossless or extended.
std::optional<ImageSize> size_of_webp(Bytes file) noexcept {
  if (file.size() < 30) return {};
  const std::string_view chunk = as_text(file).substr(12, 4);
  if (chunk == "VP8 "sv && as_text(file).substr(23, 3) == "\x9d\x01\x2a"sv) {
    return ImageSize{little_endian(file, 26, 2) & 0x3fff,
                     little_endian(file, 28, 2) & 0x3fff};
  }
  if (chunk == "VP8L"sv && file[20] == 0x2f) {
    const std::uint32_t bits = little_endian(file, 21, 4);
    return ImageSize{(bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1,
                     bits >> 28 & 1 ? 4u : 3u};
  }
  if (chunk == "VP8X"sv) {
    return ImageSize{little_endian(file, 24, 3) + 1, little_endian(file, 27, 3) + 1,
                     file[20] & 0x10 ? 4u : 3u};
  }
  return {};
}

}  // namespace

std::optional<ImageSize> image_size_of(Bytes file) noexcept {
  switch (format_of(file.first(std::min<std::size_t>(file.size(), 12)))) {
    case ByteFormat::kJpeg:
      return size_of_jpeg(file);
    case ByteFormat::kPng:
      return size_of_png(file);
    case ByteFormat::kWebp:
      return size_of_webp(file);
    default:
      return {};
  }
}

}  // namespace fastrec
