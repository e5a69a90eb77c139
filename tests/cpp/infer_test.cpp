// Surveys of records.
//
// Goal: ranges tell what there is and nothing else, and a record that cannot be read
// leaves no trace. Method: records of a few values, NaNs among them, and one whose last
// feature is damaged.

#include "example/infer.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "records.h"

namespace fastrec {
namespace {

using testing::entry_of;
using testing::example_of;
using testing::field_of;
using testing::int64_feature;

std::string float_feature(const std::vector<float>& values) {
  std::string packed;
  for (const float value : values) {
    testing::append_le(&packed, std::bit_cast<std::uint32_t>(value));
  }
  return field_of(2, field_of(1, packed));
}

Fault add(const std::string& entries, Survey* survey) {
  return survey->add(as_bytes(example_of(entries)));
}

TEST(Survey, RangesBeginAtTheFirstValueThatHasAPlaceInThem) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Survey survey;
  ASSERT_FALSE(add(entry_of("f", float_feature({kNan})), &survey));
  EXPECT_EQ(survey.features().at("f").n_values, 1u);
  EXPECT_EQ(survey.features().at("f").n_ranged, 0u);

  ASSERT_FALSE(add(entry_of("f", float_feature({kNan, 7, 5})), &survey));
  const FeatureSurvey& seen = survey.features().at("f");
  EXPECT_EQ(seen.n_values, 4u);
  EXPECT_EQ(seen.n_ranged, 2u);
  EXPECT_EQ(seen.float_min, 5);
  EXPECT_EQ(seen.float_max, 7);
  EXPECT_EQ(seen.n_values_min, 1u);
  EXPECT_EQ(seen.n_values_max, 3u);
}

TEST(Survey, EveryKindHasItsRange) {
  Survey survey;
  for (const std::int64_t value : {-3, -9}) {
    ASSERT_FALSE(add(entry_of("i", int64_feature({value})), &survey));
  }
  ASSERT_FALSE(add(entry_of("s", testing::bytes_feature({"four", "eleven"})), &survey));
  EXPECT_EQ(survey.features().at("i").int_min, -9);
  EXPECT_EQ(survey.features().at("i").int_max, -3);
  EXPECT_EQ(survey.features().at("s").bytes_min, 4u);
  EXPECT_EQ(survey.features().at("s").bytes_max, 6u);
  EXPECT_EQ(survey.features().at("s").n_ranged, 2u);
  EXPECT_EQ(survey.features().at("s").first_record[1], 2u);
}

TEST(SurveyCorruption, ARecordWithAFaultLeavesNoTrace) {
  // Counting finds nothing wrong with eleven bytes of which only the last ends.
  const std::string too_long =
      field_of(3, field_of(1, std::string(10, '\x80') + '\x01'));
  Survey survey;
  ASSERT_FALSE(add(entry_of("a", int64_feature({1})), &survey));
  const std::string entries =
      entry_of("a", int64_feature({100})) + entry_of("z", too_long);
  EXPECT_EQ(add(entries, &survey).code, Errc::kVarintTooLong);
  EXPECT_EQ(survey.n_records(), 1u);
  ASSERT_EQ(survey.features().size(), 1u);
  EXPECT_EQ(survey.features().at("a").int_max, 1);
  EXPECT_EQ(survey.features().at("a").n_values, 1u);
}

}  // namespace
}  // namespace fastrec
