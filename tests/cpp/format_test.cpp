// Formats of byte strings.
//
// Goal: files are recognized by their magic bytes, and text is exactly the well-formed
// UTF-8 without control characters. Method: every string of one to three bytes against
// the definition of UTF-8 by code points; the edges of four bytes.

#include "survey/format.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

namespace fastrec {
namespace {

using namespace std::string_view_literals;

ByteFormat format_of(std::string_view text) {
  return fastrec::format_of(as_bytes(text));
}

std::string encoded(std::uint32_t point) {
  const auto byte = [](std::uint32_t value) { return static_cast<char>(value); };
  const auto tail = [&](unsigned shift) {
    return byte(0x80 | (point >> shift & 0x3f));
  };
  if (point < 0x80) return {byte(point)};
  if (point < 0x800) return {byte(0xc0 | point >> 6), tail(0)};
  if (point < 0x10000) return {byte(0xe0 | point >> 12), tail(6), tail(0)};
  return {byte(0xf0 | point >> 18), tail(12), tail(6), tail(0)};
}

bool is_in_texts(std::uint32_t point) {
  if (point == '\t' || point == '\n' || point == '\r') return true;
  const bool is_control = point < 0x20 || (point >= 0x7f && point < 0xa0);
  const bool is_surrogate = point >= 0xd800 && point < 0xe000;
  return !is_control && !is_surrogate && point < 0x110000;
}

TEST(ByteFormat, TextIsWhatCodePointsEncodeTo) {
  std::set<std::string> characters;
  for (std::uint32_t point = 0; point < 0x10000; ++point) {
    if (is_in_texts(point)) characters.insert(encoded(point));
  }
  // Three bytes, the first of which is not ASCII, are text only as one character, or as
  // a character of two bytes and one of one byte.
  for (std::uint32_t bytes = 0; bytes < 1 << 16; ++bytes) {
    const std::string two{static_cast<char>(0x80 | bytes >> 8),
                          static_cast<char>(bytes & 0xff)};
    ASSERT_EQ(format_of(two) == ByteFormat::kText, characters.contains(two)) << bytes;
    for (const char last : {'a', '\0', '\x80', '\x9f', '\xbf', '\xc3'}) {
      const std::string three = two + last;
      const bool is_text =
          characters.contains(three) || (characters.contains(two) && last == 'a');
      ASSERT_EQ(format_of(three) == ByteFormat::kText, is_text) << bytes;
    }
  }
  for (std::uint32_t point = 0; point < 0x80; ++point) {
    ASSERT_EQ(format_of(encoded(point)) == ByteFormat::kText, is_in_texts(point));
  }
  for (std::uint32_t point = 0x10000; point < 0x1fffff; point += 0x3f) {
    ASSERT_EQ(format_of(encoded(point)) == ByteFormat::kText, is_in_texts(point));
  }
  for (const auto text : {"\xf0\x8f\xbf\xbf"sv, "\xf4\x90\x80\x80"sv, "\xf0\x90\x80"sv,
                          "\xf5\x80\x80\x80"sv, "\xf0\x90\x80\x20"sv}) {
    EXPECT_EQ(format_of(text), ByteFormat::kOther);
  }
}

TEST(ByteFormat, TextMayBeLongAndEmpty) {
  EXPECT_EQ(format_of(""), ByteFormat::kText);
  EXPECT_EQ(format_of("caf\xc3\xa9 \xf0\x9f\x90\x88\r\n\t"), ByteFormat::kText);
  EXPECT_EQ(format_of("caf\xc3"), ByteFormat::kOther);
  EXPECT_EQ(format_of("a\0b"sv), ByteFormat::kOther);
}

TEST(ByteFormat, FilesAreKnownByHowTheyBegin) {
  EXPECT_EQ(format_of("\xff\xd8\xff"), ByteFormat::kJpeg);
  EXPECT_EQ(format_of("\xff\xd8"), ByteFormat::kOther);
  EXPECT_EQ(format_of("\x89PNG\r\n\x1a\n..."), ByteFormat::kPng);
  EXPECT_EQ(format_of("\x89PNG\r\n\x1a"), ByteFormat::kOther);
  EXPECT_EQ(format_of("GIF89a"), ByteFormat::kGif);
  EXPECT_EQ(format_of("GIF88a"), ByteFormat::kText);
  EXPECT_EQ(format_of("RIFF\1\2\3\4WEBP"), ByteFormat::kWebp);
  EXPECT_EQ(format_of("RIFF\1\2\3\4WEB"), ByteFormat::kOther);
}

TEST(ByteFormat, WhatDiffersIsOther) {
  using enum ByteFormat;
  EXPECT_EQ(common_format(kNone, kNone), kNone);
  EXPECT_EQ(common_format(kJpeg, kNone), kJpeg);
  EXPECT_EQ(common_format(kNone, kText), kText);
  EXPECT_EQ(common_format(kPng, kPng), kPng);
  EXPECT_EQ(common_format(kPng, kJpeg), kOther);
  EXPECT_EQ(common_format(kOther, kText), kOther);
}

}  // namespace
}  // namespace fastrec
