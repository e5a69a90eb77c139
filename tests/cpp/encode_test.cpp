// Encode: features -> a serialized tf.train.Example.
//
// Goal: the bytes are those that protobuf would write, and have the measured size.
// Method: messages written by hand, and sizes on both sides of every varint length.
// tests/writer/test_writer.py reads the output with protobuf.

#include "encode/encode.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "record/framing.h"
#include "records.h"
#include "wire/varint.h"

namespace fastrec {
namespace {

using namespace std::string_view_literals;

FeatureValues bytes_feature(std::string_view key, std::span<const Bytes> values) {
  return {as_bytes(key), FeatureKind::kBytes, values, {}, {}};
}

FeatureValues float_feature(std::string_view key, std::span<const float> values) {
  return {as_bytes(key), FeatureKind::kFloat, {}, values, {}};
}

FeatureValues int_feature(std::string_view key, std::span<const std::int64_t> values) {
  return {as_bytes(key), FeatureKind::kInt64, {}, {}, values};
}

std::string encoded(const std::vector<FeatureValues>& features) {
  ExampleEncoder encoder;
  std::string out(encoder.measure(features) + 1, '?');
  encoder.store(reinterpret_cast<std::uint8_t*>(out.data()));
  EXPECT_EQ(out.back(), '?');  // store() wrote no more than was measured
  out.pop_back();
  return out;
}

TEST(Encode, ARowWithoutFeaturesHasAnEmptyMap) { EXPECT_EQ(encoded({}), "\x0a\x00"sv); }

TEST(Encode, Int64sArePackedVarints) {
  const std::vector<std::int64_t> values = {1, 300, -1};
  EXPECT_EQ(encoded({int_feature("a", values)}),
            "\x0a\x18"                                      // Features
            "\x0a\x16"                                      // entry
            "\x0a\x01\x61"                                  // key
            "\x12\x11"                                      // Feature
            "\x1a\x0f"                                      // Int64List
            "\x0a\x0d"                                      // packed
            "\x01"                                          // 1
            "\xac\x02"                                      // 300
            "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv);  // -1
}

TEST(Encode, FloatsArePackedAndKeepTheirBits) {
  const std::vector<float> values = {1.0f, -0.0f};
  EXPECT_EQ(encoded({float_feature("f", values)}),
            "\x0a\x13\x0a\x11\x0a\x01\x66\x12\x0c\x12\x0a\x0a\x08"
            "\x00\x00\x80\x3f\x00\x00\x00\x80"sv);
}

TEST(Encode, ByteStringsFollowEachOther) {
  const std::vector<Bytes> values = {as_bytes("hi"), as_bytes(""), as_bytes("\0"sv)};
  EXPECT_EQ(encoded({bytes_feature("b", values)}),
            "\x0a\x12\x0a\x10\x0a\x01\x62\x12\x0b\x0a\x09"
            "\x0a\x02hi\x0a\x00\x0a\x01\x00"sv);
}

TEST(Encode, AnEmptyListHasItsKindAndNoValues) {
  EXPECT_EQ(encoded({bytes_feature("k", {})}),
            "\x0a\x09\x0a\x07\x0a\x01k\x12\x02\x0a\x00"sv);
  EXPECT_EQ(encoded({float_feature("k", {})}),
            "\x0a\x09\x0a\x07\x0a\x01k\x12\x02\x12\x00"sv);
  EXPECT_EQ(encoded({int_feature("k", {})}),
            "\x0a\x09\x0a\x07\x0a\x01k\x12\x02\x1a\x00"sv);
}

TEST(Encode, FeaturesKeepTheirOrder) {
  const std::vector<std::int64_t> one = {1};
  const std::string row = encoded({int_feature("z", one), int_feature("", one)});
  EXPECT_EQ(row,
            "\x0a\x17"
            "\x0a\x0a\x0a\x01z\x12\x05\x1a\x03\x0a\x01\x01"
            "\x0a\x09\x0a\x00\x12\x05\x1a\x03\x0a\x01\x01"sv);
}

TEST(Encode, VarintsOfEveryWidthTakeNoMoreBytesThanTheyNeed) {
  for (unsigned bits = 1; bits <= 64; ++bits) {
    for (const std::uint64_t value :
         {std::uint64_t{1} << (bits - 1), ~std::uint64_t{0} >> (64 - bits)}) {
      const std::vector<std::int64_t> values = {static_cast<std::int64_t>(value)};
      const std::string row = encoded({int_feature("k", values)});
      const std::size_t width = (bits + 6) / 7;
      ASSERT_EQ(row.size(), 13 + width) << bits;

      const Bytes varint = as_bytes(row).last(width);
      std::uint64_t read = 0;
      Errc errc;
      EXPECT_EQ(read_varint(varint.data(), varint.data() + width, &read, &errc),
                varint.data() + width);
      EXPECT_EQ(read, value);
    }
  }
}

TEST(Encode, LengthsGrowWithWhatTheyMeasure) {
  // At each of these sizes, some length in the message needs a longer varint.
  for (std::size_t size = 100; size < 140; ++size) {
    const std::string text(size, 'x');
    const std::vector<Bytes> values = {as_bytes(text)};
    const std::string row = encoded({bytes_feature("k", values)});
    EXPECT_EQ(row.substr(row.size() - size), text);
  }
}

TEST(Encode, WhatProtobufCannotReadIsRefusedBeforeMemoryIsTaken) {
  const std::string mebibyte(1 << 20, 'x');
  const std::vector<Bytes> values(2048, as_bytes(mebibyte));
  const std::vector<FeatureValues> features = {bytes_feature("k", values)};
  ExampleEncoder encoder;
  EXPECT_THROW(encoder.measure(features), std::length_error);
}

TEST(Encode, ASequenceHasAContextAndListsOfFeatures) {
  const std::vector<std::int64_t> ints = {300};
  const std::vector<float> floats = {0.5f};
  const std::vector<FeatureValues> context = {int_feature("n", ints)};
  // The last step has no kind, which a step without values may lack.
  const std::vector<FeatureValues> steps = {float_feature("", floats), {}};
  const std::vector<FeatureListValues> lists = {{as_bytes("l"sv), steps},
                                                {as_bytes("e"sv), {}}};
  ExampleEncoder encoder;
  std::string out(encoder.measure(context, lists), '?');
  encoder.store(reinterpret_cast<std::uint8_t*>(out.data()));

  const std::string packed = testing::field_of(1, "\x00\x00\x00\x3f"sv);
  const std::string list =
      testing::field_of(1, testing::field_of(2, packed)) + testing::field_of(1, "");
  EXPECT_EQ(
      out, testing::field_of(1, testing::entry_of("n", testing::int64_feature({300}))) +
               testing::field_of(
                   2, testing::entry_of("l", list) + testing::entry_of("e", "")));
}

}  // namespace
}  // namespace fastrec
