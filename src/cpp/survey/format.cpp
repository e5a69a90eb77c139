#include "survey/format.h"

#include <cstddef>
#include <string_view>

namespace fastrec {
namespace {

using namespace std::string_view_literals;

bool is_printable(std::uint8_t ascii) {
  return ascii >= 0x20 ? ascii != 0x7f
                       : ascii == '\t' || ascii == '\n' || ascii == '\r';
}

// The size of the non-ASCII character at the beginning of `text`; 0 if it is malformed
// or a control character (U+0080 to U+009F).
//
// The first two bytes exclude overlong forms, surrogates and characters above U+10FFFF
// (RFC 3629, section 4).
std::size_t size_of_character(Bytes text) {
  const std::uint8_t first = text[0];
  std::uint8_t second_min = 0x80, second_max = 0xbf;
  std::size_t size;
  if (first >= 0xc2 && first <= 0xdf) {
    size = 2;
    if (first == 0xc2) second_min = 0xa0;
  } else if (first >= 0xe0 && first <= 0xef) {
    size = 3;
    if (first == 0xe0) second_min = 0xa0;
    if (first == 0xed) second_max = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    size = 4;
    if (first == 0xf0) second_min = 0x90;
    if (first == 0xf4) second_max = 0x8f;
  } else {
    return 0;
  }
  if (size > text.size() || text[1] < second_min || text[1] > second_max) return 0;
  for (std::size_t i = 2; i < size; ++i) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  return size;
}

bool is_text(Bytes string) {
  for (std::size_t i = 0; i < string.size();) {
    std::size_t size = 1;
    if (string[i] >= 0x80) {
      size = size_of_character(string.subspan(i));
      if (size == 0) return false;
    } else if (!is_printable(string[i])) {
      return false;
    }
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
