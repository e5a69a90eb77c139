// Surveys of records.
//
// Goal: ranges are exact; an unreadable record leaves the survey unchanged; feature
// lists are distinguished from unknown fields of Examples. Method: records of a few
// values, including NaNs; records whose last feature or list is damaged.

#include "survey/infer.h"

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
  Survey survey(100);
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
  Survey survey(100);
  for (const std::int64_t value : {-3, -9}) {
    ASSERT_FALSE(add(entry_of("i", int64_feature({value})), &survey));
  }
  ASSERT_FALSE(add(entry_of("s", testing::bytes_feature({"four", "eleven"})), &survey));
  EXPECT_EQ(survey.features().at("i").int_min, -9);
  EXPECT_EQ(survey.features().at("i").int_max, -3);
  EXPECT_EQ(survey.features().at("s").bytes_min, 4u);
  EXPECT_EQ(survey.features().at("s").bytes_max, 6u);
  EXPECT_EQ(survey.features().at("s").n_ranged, 2u);
  EXPECT_EQ(survey.features().at("s").format, ByteFormat::kText);
  EXPECT_EQ(survey.features().at("i").format, ByteFormat::kNone);
}

TEST(SurveyCorruption, ARecordWithAFaultLeavesNoTrace) {
  // Counting accepts a varint of eleven bytes; decoding does not.
  const std::string too_long =
      field_of(3, field_of(1, std::string(10, '\x80') + '\x01'));
  Survey survey(100);
  ASSERT_FALSE(add(entry_of("a", int64_feature({1})), &survey));
  const std::string entries =
      entry_of("a", int64_feature({100})) + entry_of("z", too_long);
  EXPECT_EQ(add(entries, &survey).code, Errc::kVarintTooLong);
  EXPECT_EQ(survey.n_records(), 1u);
  ASSERT_EQ(survey.features().size(), 1u);
  EXPECT_EQ(survey.features().at("a").int_max, 1);
  EXPECT_EQ(survey.features().at("a").n_values, 1u);
}

TEST(SurveyCorruption, FaultsAreLocatedInTheRecord) {
  const std::string cut = field_of(3, field_of(1, "\x80"));
  const std::string record = example_of(entry_of("a", cut));
  Survey survey(100);
  const Fault fault = survey.add(as_bytes(record));
  EXPECT_EQ(fault.code, Errc::kVarintCut);
  EXPECT_EQ(fault.offset, record.size() - cut.size());
}

// A SequenceExample with one list in its field 2.
std::string sequence_of(const std::string& key, const std::vector<std::string>& steps) {
  std::string list;
  for (const std::string& step : steps) list += field_of(1, step);
  return field_of(2, entry_of(key, list));
}

TEST(Survey, ListsAreSurveyedByStepsAndByRecords) {
  Survey survey(100);
  const std::string three = sequence_of(
      "x", {int64_feature({4, 2}), int64_feature({7}), testing::bytes_feature({})});
  ASSERT_FALSE(survey.add(as_bytes(example_of(entry_of("c", int64_feature({1}))))));
  EXPECT_EQ(survey.n_sequences(), 0u);
  ASSERT_FALSE(survey.add(as_bytes(three)));
  ASSERT_FALSE(survey.add(as_bytes(sequence_of("x", {""}))));
  EXPECT_EQ(survey.n_records(), 3u);
  EXPECT_EQ(survey.n_sequences(), 2u);
  EXPECT_EQ(survey.features().at("c").n_present(), 1u);
  const ListSurvey& seen = survey.lists().at("x");
  EXPECT_EQ(seen.n_records, 2u);
  EXPECT_EQ(seen.n_steps_min, 1u);
  EXPECT_EQ(seen.n_steps_max, 3u);
  EXPECT_EQ(seen.steps.n_of_kind[0], 1u);
  EXPECT_EQ(seen.steps.n_of_kind[1], 1u);
  EXPECT_EQ(seen.steps.n_of_kind[3], 2u);
  EXPECT_EQ(seen.steps.n_values_min, 0u);
  EXPECT_EQ(seen.steps.n_values_max, 2u);
  EXPECT_EQ(seen.steps.int_min, 2);
  EXPECT_EQ(seen.steps.int_max, 7);
}

TEST(Survey, TheLastListOfAKeyCounts) {
  Survey survey(100);
  const std::string record =
      sequence_of("x", {int64_feature({1})}) + sequence_of("x", {int64_feature({2})});
  ASSERT_FALSE(survey.add(as_bytes(record)));
  EXPECT_EQ(survey.lists().at("x").n_records, 1u);
  EXPECT_EQ(survey.lists().at("x").steps.int_min, 2);
}

TEST(Survey, AFieldOfAnotherMeaningIsNoList) {
  const std::string context = example_of(entry_of("c", int64_feature({1})));
  const std::string cut_step = sequence_of("x", {"\x0a\x05"});
  // A string, a list truncated inside a step, a varint, a message of other fields.
  for (const std::string& field :
       {field_of(2, "a name"), cut_step, std::string("\x10\1"),
        field_of(2, field_of(3, "x"))}) {
    Survey survey(100);
    ASSERT_FALSE(survey.add(as_bytes(context + field)));
    EXPECT_EQ(survey.n_sequences(), 0u);
    EXPECT_TRUE(survey.lists().empty());
    EXPECT_EQ(survey.features().at("c").int_min, 1);
  }
  // An empty map counts as feature lists.
  Survey survey(100);
  ASSERT_FALSE(survey.add(as_bytes(context + field_of(2, ""))));
  EXPECT_EQ(survey.n_sequences(), 1u);
}

}  // namespace
}  // namespace fastrec
