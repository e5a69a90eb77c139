// Sizes of images.
//
// Goal: the size in a header is found wherever the format allows it, and a file without
// one has none, whatever its bytes are. Method: handmade headers, all their truncations,
// and every change of one byte.

#include "survey/image_size.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace fastrec {
namespace {

using namespace std::string_view_literals;

std::string size_of(std::string_view file) {
  const auto size = image_size_of(as_bytes(file));
  return size ? std::to_string(size->width) + "x" + std::to_string(size->height)
              : "none";
}

// SOI, APP0 of 4 bytes, DHT, a stray byte, fill bytes, SOF2.
constexpr auto kJpeg =
    "\xff\xd8\xff\xe0\0\4ab\xff\xc4\0\3\xff\x99\xff\xff\xff\xc2\0\x0b\x08\x01\x02\x03"
    "\x04\1\1\x11\0"sv;
constexpr auto kPng = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\2\0\0\3\4\x08\2\0\0\0"sv;
constexpr auto kLossy =
    "RIFF\x20\0\0\0WEBPVP8 \x10\0\0\0\0\0\0\x9d\x01\x2a\x02\x41\x04\xc3\0\0"sv;
constexpr auto kLossless =
    "RIFF\x20\0\0\0WEBPVP8L\x10\0\0\0\x2f\x01\xc1\xc0\x00\0\0\0\0\0\0\0"sv;
constexpr auto kExtended =
    "RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x01\x01\0\x03\x03\0"sv;

TEST(ImageSize, IsInTheHeader) {
  EXPECT_EQ(size_of(kJpeg), "772x258");
  EXPECT_EQ(size_of(kPng), "258x772");
  EXPECT_EQ(size_of(kLossy), "258x772");
  EXPECT_EQ(size_of(kLossless), "258x772");
  EXPECT_EQ(size_of(kExtended), "258x772");
}

// "channels x bits" of `file` with another byte at `offset`.
std::string depth_of(std::string_view file, std::size_t offset, char byte) {
  std::string changed(file);
  changed[offset] = byte;
  const auto size = image_size_of(as_bytes(changed));
  return size ? std::to_string(size->channels) + "x" + std::to_string(size->bits)
              : "none";
}

TEST(ImageSize, ChannelsAndBitsAreInTheHeader) {
  // By PNG color type: gray, RGB, palette, gray with alpha, RGB with alpha.
  EXPECT_EQ(depth_of(kPng, 25, 0), "1x8");
  EXPECT_EQ(depth_of(kPng, 25, 2), "3x8");
  EXPECT_EQ(depth_of(kPng, 25, 3), "3x8");
  EXPECT_EQ(depth_of(kPng, 25, 4), "4x8");
  EXPECT_EQ(depth_of(kPng, 25, 6), "4x8");
  EXPECT_EQ(depth_of(kPng, 24, 16), "3x16");
  EXPECT_EQ(depth_of(kPng, 24, 1), "3x8");
  EXPECT_EQ(depth_of(kJpeg, kJpeg.size() - 4, 1), "1x8");
  EXPECT_EQ(depth_of(kJpeg, kJpeg.size() - 4, 3), "3x8");
  EXPECT_EQ(depth_of(kJpeg, kJpeg.size() - 4, 4), "3x8");
  EXPECT_EQ(depth_of(kLossy, 0, 'R'), "3x8");
  EXPECT_EQ(depth_of(kExtended, 20, 0), "3x8");
  EXPECT_EQ(depth_of(kExtended, 20, 0x10), "4x8");
  EXPECT_EQ(depth_of(kLossless, 24, 0x10), "4x8");
  EXPECT_EQ(depth_of(kLossless, 24, 0), "3x8");
}

TEST(ImageSize, OtherFilesHaveNone) {
  for (const auto file :
       {""sv, "text"sv, "GIF89a\1\0\1\0------------------------"sv, "\xff\xd8\xff"sv,
        "\xff\xd8\xff\xd9"sv, "\xff\xd8\xff\xda\0\2\xff\xc0\0\7\x08\0\1\0\1"sv,
        "\xff\xd8\xff\xe0\0\1\xff\xc0\0\7\x08\0\1\0\1"sv,
        "\x89PNG\r\n\x1a\n\0\0\0\rJUNK\0\0\1\2\0\0\3\4"sv,
        "RIFF\x20\0\0\0WEBPJUNK\x0a\0\0\0\0\0\0\0\x01\x01\0\x03\x03\0"sv}) {
    EXPECT_EQ(size_of(file), "none");
  }
}

TEST(ImageSize, DamagedHeadersAreReadWithinTheirBounds) {
  for (const auto file : {kJpeg, kPng, kLossy, kLossless, kExtended}) {
    for (std::size_t size = 0; size < file.size(); ++size) {
      const std::string cut(file.substr(0, size));  // on the heap, for sanitizers
      const std::string found = size_of(cut);
      EXPECT_TRUE(found == "none" || found == size_of(file)) << size;
    }
    for (std::size_t i = 0; i < file.size(); ++i) {
      for (const char byte : {'\0', '\1', '\x7f', '\xff'}) {
        std::string changed(file);
        changed[i] = byte;
        (void)size_of(changed);
      }
    }
  }
}

}  // namespace
}  // namespace fastrec
