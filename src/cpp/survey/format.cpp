#include "survey/format.h"

#include <bit>
#include <cstddef>
#include <string_view>

namespace fastrec {
namespace {

using namespace std::string_view_literals;

// The size of the non-ASCII character at the beginning of `text`; 0 if it is malformed
// or a control character.
std::size_t size_of_character(Bytes text) {
  // The first character of each size: overlong forms are malformed, and U+0080 to U+009F
  // are control characters.
  constexpr std::uint32_t kFirst[] = {0, 0, 0xa0, 0x800, 0x10000};
  constexpr std::uint32_t kLast = 0x10ffff;
  const auto size = static_cast<std::size_t>(std::countl_one(text[0]));
  if (size < 2 || size > 4 || size > text.size()) return 0;
  std::uint32_t character = text[0] & (0x7fu >> size);
  for (const std::uint8_t byte : text.subspan(1, size - 1)) {
    if ((byte & 0xc0) != 0x80) return 0;
    character = character << 6 | (byte & 0x3f);
  }
  const bool is_surrogate = character >= 0xd800 && character <= 0xdfff;
  return character < kFirst[size] || character > kLast || is_surrogate ? 0 : size;
}

bool is_text(Bytes string) {
  for (std::size_t i = 0; i < string.size();) {
    const std::uint8_t first = string[i];
    const bool is_printable =
        first >= 0x20 ? first != 0x7f : first == '\t' || first == '\n' || first == '\r';
    const std::size_t size =
        first < 0x80 ? is_printable : size_of_character(string.subspan(i));
    if (size == 0) return false;
    i += size;
  }
  return true;
}

}  // namespace

ByteFormat format_of(Bytes string) noexcept {
  const std::string_view bytes = as_text(string);
  if (bytes.starts_with("\xff\xd8\xff"sv)) return ByteFormat::kJpeg;
  if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv)) return ByteFormat::kPng;
  if (bytes.starts_with("GIF87a"sv) || bytes.starts_with("GIF89a"sv)) {
    return ByteFormat::kGif;
  }
  if (bytes.size() >= 12 && bytes.starts_with("RIFF"sv) &&
      bytes.substr(8, 4) == "WEBP"sv) {
    return ByteFormat::kWebp;
  }
  if (bytes.starts_with("BM"sv) &&
      bytes.substr(2).substr(0, 8).ends_with("\0\0\0\0"sv)) {
    return ByteFormat::kBmp;
  }
  if (bytes.starts_with("II*\0"sv) || bytes.starts_with("MM\0*"sv)) {
    return ByteFormat::kTiff;
  }
  return is_text(string) ? ByteFormat::kText : ByteFormat::kOther;
}

}  // namespace fastrec
