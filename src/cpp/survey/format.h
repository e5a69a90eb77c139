// Format: a byte string -> its file format, or text.
//
// Only the magic bytes at the beginning are checked. Text is UTF-8 without control
// characters other than tabs and line ends.
//
// Source: the JPEG (ITU-T T.81), PNG, GIF89a, RIFF and TIFF 6.0 specifications;
// BITMAPFILEHEADER of the Windows API; RFC 3629.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/names.h"

namespace fastrec {

enum class ByteFormat : std::uint8_t {
  kNone,   // no string yet
  kOther,  // another format, or several
  kText,
  kJpeg,
  kPng,
  kGif,
  kWebp,
  kBmp,
  kTiff,
};

template <>
struct Names<ByteFormat> {
  static constexpr const char* kAll[] = {"",    "",     "UTF-8 text", "JPEG", "PNG",
                                         "GIF", "WebP", "BMP",        "TIFF"};
};

// The empty string is text.
ByteFormat format_of(Bytes string) noexcept;

// The format of two sets of strings together.
constexpr ByteFormat common_format(ByteFormat a, ByteFormat b) noexcept {
  if (a == ByteFormat::kNone) return b;
  return b == ByteFormat::kNone || a == b ? a : ByteFormat::kOther;
}

}  // namespace fastrec
