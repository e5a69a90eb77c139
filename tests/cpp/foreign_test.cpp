// Records that are not Examples.
//
// Goal: a record is described by what it looks like, and an Example or SequenceExample
// never is, whether it has values or not. Method: handmade messages of each kind.

#include "survey/foreign.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace fastrec {
namespace {

using namespace std::string_view_literals;

std::string described(std::string_view record) {
  return describe_foreign(as_bytes(record));
}

// A length-delimited field of less than 128 bytes.
std::string field(int number, std::string_view content) {
  std::string text;
  text += static_cast<char>(number << 3 | 2);
  text += static_cast<char>(content.size());
  return text.append(content);
}

std::string entry(std::string_view key, std::string_view feature) {
  return field(1, field(1, key) + field(2, feature));
}

const std::string kInts = field(3, field(1, "\x07"sv));  // a Feature: int64_list [7]
const std::string kExample = field(1, entry("id", kInts));

TEST(Foreign, ExamplesAreNotForeign) {
  for (const std::string& record :
       {std::string(), field(1, ""), kExample, field(1, entry("unset", "")),
        kExample + field(1, entry("b", kInts)), field(1, entry("\xff\x01", kInts)),
        kExample + "\x18\x05", field(2, entry("steps", field(1, kInts))),
        kExample + field(2, ""), field(1, entry("\xff\x01", "")),
        field(1, field(1, field(1, "no value")) + entry("unset", ""))}) {
    EXPECT_EQ(described(record), "") << ::testing::PrintToString(record);
  }
}

TEST(Foreign, OtherRecordsAreDescribed) {
  EXPECT_EQ(described("hello, world\n"), "UTF-8 text");
  EXPECT_EQ(described("\xff\xd8\xff\xe0----"), "a JPEG file");
  EXPECT_EQ(described("\x89PNG\r\n\x1a\n----"), "a PNG file");
  EXPECT_EQ(described("BM\x9a\0\0\0\0\0\0\0\x36\0\0\0"sv), "a BMP file");
  EXPECT_EQ(described("BM 95\n"), "UTF-8 text");
  EXPECT_EQ(described("II*\0\x08\0\0\0"sv), "a TIFF file");
  EXPECT_EQ(described("MM\0*\0\0\0\x08"sv), "a TIFF file");
  EXPECT_EQ(described("/9j/4AAQSkZJRg"), "an image in base64");
  EXPECT_EQ(described("\x08\x03\x12\x04\x12\x02\x08\x01\x22\x04\1\0\0\0"sv),
            "a serialized tensor");
  EXPECT_EQ(described("\xfe\xfe\xfe"), "3 bytes of an unknown format");
  // tensorflow.Event, with a double in field 1.
  EXPECT_EQ(described("\x09\0\0\0\0\0\0\xf0\x3f\x1a\x02\0\0"sv),
            "a serialized protobuf message with fields 1, 3");
  // ExampleListWithContext: Examples in the place of features.
  EXPECT_EQ(described(field(1, kExample) + field(1, kExample) + field(2, kExample)),
            "a serialized protobuf message with fields 1, 2");
  EXPECT_EQ(described(field(1, "\x08\x01")),
            "a serialized protobuf message with fields 1");
  // No entry has a value.
  EXPECT_EQ(described(field(1, field(1, field(1, "key")))),
            "a serialized protobuf message with fields 1");
  EXPECT_EQ(described(field(2, field(1, field(1, "key")))),
            "a serialized protobuf message with fields 2");
}

TEST(Foreign, ManyFieldsAreCutShort) {
  std::string record;
  for (int number = 15; number > 0; --number) record += field(number, "\xff");
  EXPECT_EQ(described(record),
            "a serialized protobuf message with fields 8, 9, 10, 11, 12, 13, 14, 15, "
            "...");
}

}  // namespace
}  // namespace fastrec
