// The general decoder at its edges.
//
// Goal: the decoder accepts what protobuf accepts, with the same values; everything else
// is a fault at an offset inside the record; hostile numbers do not cost memory.
// Method: messages written by hand, one per rule. tests/core/test_decode.py tests all rules
// against an oracle.

#include "decode/decode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <ios>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "decode/values.h"
#include "records.h"

namespace fastrec {
namespace {

using testing::bytes_feature;
using testing::entry_of;
using testing::example_of;
using testing::field_of;
using testing::int64_feature;
using testing::varint_of;

std::shared_ptr<const Schema> ragged_ints(const std::string& key) {
  auto schema = std::make_shared<Schema>();
  ColumnSpec spec;
  spec.key = key;
  spec.kind = FeatureKind::kInt64;
  spec.layout = Layout::kRagged;
  spec.item_bytes = sizeof(std::int64_t);
  schema->columns.push_back(spec);
  return schema;
}

// The int64 values of feature "x" in `example`, or the fault.
struct Decoded {
  std::vector<std::int64_t> values;
  Fault fault;
};

Decoded decode(const std::string& example) {
  const auto schema = ragged_ints("x");
  ExampleDecoder decoder(schema);
  BatchBuilder builder(schema, std::make_shared<BlockPool>(1 << 20));
  builder.begin(1);
  // A copy without slack, so that sanitizers detect every over-read.
  const std::vector<std::uint8_t> record(example.begin(), example.end());
  Decoded decoded;
  decoded.fault = decoder.decode_any(BytesWithSlack(record), 0, &builder);
  if (decoded.fault) return decoded;
  const Batch batch = builder.finish(1);
  const auto* values =
      reinterpret_cast<const std::int64_t*>(batch.columns[0].values.data);
  decoded.values.assign(values, values + batch.columns[0].n_values);
  return decoded;
}

using Values = std::vector<std::int64_t>;

TEST(Decode, EveryLengthOfVarintKeepsItsBits) {
  Values values{0, -1, std::numeric_limits<std::int64_t>::min()};
  for (int bit = 0; bit < 63; ++bit) {
    values.push_back(std::int64_t{1} << bit);
    values.push_back((std::int64_t{1} << bit) - 1);
  }
  EXPECT_EQ(decode(example_of(entry_of("x", int64_feature(values)))).values, values);
}

TEST(Decode, OverlongVarintsAreReadAndElevenBytesRefused) {
  const auto list = [](const std::string& packed) {
    return example_of(entry_of("x", field_of(3, field_of(1, packed))));
  };
  EXPECT_EQ(decode(list("\x81\x80\x80" + std::string(1, '\0'))).values, Values{1});
  EXPECT_EQ(decode(list(std::string(9, '\xff') + '\x7f')).values, Values{-1});
  EXPECT_EQ(decode(list(std::string(10, '\xff') + '\x01')).fault.code,
            Errc::kVarintTooLong);
  EXPECT_EQ(decode(list("\xff\xff")).fault.code, Errc::kVarintCut);
}

TEST(Decode, PiecesOfOneListAreJoinedAndTheLastKindCounts) {
  const std::string one = field_of(3, field_of(1, "\x01"));
  const std::string two = field_of(3, "\x08\x02" + field_of(1, "\x03"));
  EXPECT_EQ(decode(example_of(entry_of("x", one + two))).values, (Values{1, 2, 3}));
  EXPECT_EQ(decode(example_of(entry_of("x", one + field_of(2, "") + two))).values,
            (Values{2, 3}));
  EXPECT_EQ(decode(example_of(entry_of("x", one + field_of(2, "")))).fault.code,
            Errc::kFeatureKind);
}

TEST(Decode, TheLastEntryOfAKeyCountsAndOneWithoutKindIsMissing) {
  const std::string first = entry_of("x", int64_feature({1}));
  EXPECT_EQ(decode(example_of(first + entry_of("x", int64_feature({2})))).values,
            Values{2});
  EXPECT_EQ(decode(example_of(first + entry_of("x", ""))).values, Values{});
  EXPECT_EQ(
      decode(example_of(first) + example_of(entry_of("x", int64_feature({3})))).values,
      Values{3});
}

TEST(Decode, TwoValuesInOneEntryAreOneFeature) {
  const std::string entry =
      field_of(1, field_of(2, int64_feature({1})) + field_of(1, "x") +
                      field_of(2, int64_feature({2})));
  EXPECT_EQ(decode(example_of(entry)).values, (Values{1, 2}));
}

TEST(Decode, GroupsNestToAHundredAndMustBalance) {
  const auto groups = [](int n_begin, int n_end) {
    std::string text;
    text.append(static_cast<std::size_t>(n_begin), '\x1b');  // field 3, group begin
    text.append(static_cast<std::size_t>(n_end), '\x1c');    // field 3, group end
    return text + example_of(entry_of("x", int64_feature({5})));
  };
  EXPECT_EQ(decode(groups(100, 100)).values, Values{5});
  EXPECT_EQ(decode(groups(101, 101)).fault.code, Errc::kGroup);
  EXPECT_EQ(decode(groups(0, 1)).fault.code, Errc::kGroup);
  EXPECT_TRUE(decode(groups(2, 1)).fault);
}

TEST(Decode, ADefaultOfNoValuesFillsARowOfNone) {
  auto schema = std::make_shared<Schema>();
  ColumnSpec spec;
  spec.key = "x";
  spec.kind = FeatureKind::kInt64;
  spec.item_bytes = sizeof(std::int64_t);
  spec.n_values = 0;
  spec.default_values.emplace();
  schema->columns.push_back(spec);
  ExampleDecoder decoder(schema);
  BatchBuilder builder(schema, std::make_shared<BlockPool>(0));
  builder.begin(1);
  EXPECT_FALSE(decoder.decode(BytesWithSlack({}), 0, &builder));
  EXPECT_EQ(builder.finish(1).columns[0].n_values, 0u);
}

TEST(DecodeHostile, LengthsPastTheirParentAreFaultsInsideTheRecord) {
  for (const std::uint64_t length : {std::uint64_t{100}, std::uint64_t{1} << 31,
                                     std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    std::string record(1, '\x0a');
    record += varint_of(length) + "abc";
    const Decoded decoded = decode(record);
    EXPECT_EQ(decoded.fault.code, Errc::kLengthPastEnd);
    EXPECT_LE(decoded.fault.offset, record.size());
  }
}

TEST(DecodeHostile, EveryTruncationIsReadOrRefusedButNeverReadPast) {
  const std::string whole = example_of(entry_of("y", bytes_feature({"abc", ""})) +
                                       entry_of("x", int64_feature({1, 300, -7}))) +
                            "\x1d\x01\x02\x03\x04";
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Decoded decoded = decode(whole.substr(0, size));
    if (!decoded.fault) {
      EXPECT_TRUE(decoded.values.empty() || decoded.values == (Values{1, 300, -7}));
    }
  }
}

TEST(Values, Float16RoundsToTheNearestAndTiesToEven) {
  const struct {
    float value;
    std::uint16_t bits;
  } cases[] = {
      {0.0f, 0x0000},          {-0.0f, 0x8000},          {1.0f, 0x3c00},
      {65504.0f, 0x7bff},      {65519.996f, 0x7bff},     {65520.0f, 0x7c00},
      {-1e30f, 0xfc00},        {6.1035156e-5f, 0x0400},  {5.9604645e-8f, 0x0001},
      {2.9802322e-8f, 0x0000}, {1.00048828125f, 0x3c00}, {1.00146484375f, 0x3c02},
  };
  for (const auto& [value, bits] : cases) EXPECT_EQ(float16_bits(value), bits) << value;
  EXPECT_EQ(float16_bits(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(float16_bits(std::nanf("")) & 0x7e00, 0x7e00);
}

TEST(Values, Bfloat16RoundsToTheNearestAndTiesToEven) {
  // The bits of a float, and of its bfloat16.
  const std::pair<std::uint32_t, std::uint16_t> cases[] = {
      {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x3f800000, 0x3f80},
      {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
      {0x3f817fff, 0x3f81}, {0x00008000, 0x0000}, {0x00018000, 0x0002},
      {0x7f7f7fff, 0x7f7f}, {0x7f7f8000, 0x7f80}, {0xff7fffff, 0xff80},
      {0x7f800000, 0x7f80}, {0x7f800001, 0x7fc0}, {0xffffffff, 0xffff},
  };
  for (const auto& [bits, rounded] : cases) {
    EXPECT_EQ(bfloat16_bits(std::bit_cast<float>(bits)), rounded) << std::hex << bits;
  }
}

}  // namespace
}  // namespace fastrec
