// Names of enums.
//
// Goal: every value has the name that Python uses for it. Method: the last value of
// each enum, since names are in the order of the values, and the way back for all of
// them.

#include "base/names.h"

#include <gtest/gtest.h>

#include <iterator>

#include "base/cpu.h"
#include "base/error.h"
#include "batch/schema.h"
#include "loader/batch_decoder.h"
#include "record/recovery.h"
#include "survey/format.h"

namespace fastrec {
namespace {

// Whether the last name is that of `last`, and each name leads to its value.
template <typename Enum>
void expect_names(Enum last, const char* name) {
  constexpr std::size_t kCount = std::size(Names<Enum>::kAll);
  EXPECT_EQ(static_cast<std::size_t>(last), kCount - 1) << name;
  EXPECT_STREQ(name_of(last), name);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto value = static_cast<Enum>(i);
    EXPECT_EQ(named<Enum>(name_of(value)), value) << name_of(value);
  }
  EXPECT_EQ(named<Enum>("no such name"), std::nullopt);
}

TEST(Names, AreThoseOfTheValues) {
  expect_names(Isa::kArm64, "arm64");
  expect_names(ErrorClass::kLimit, "LimitError");
  expect_names(FeatureKind::kInt64, "int64");
  expect_names(Layout::kRecord, "record");
  expect_names(Section::kStepSizes, "step_sizes");
  expect_names(DType::kOpaque, "");
  expect_names(PartitionKind::kUniformRowLength, "uniform_row_length");
  expect_names(Io::kRanges, "ranges");
  expect_names(Recovery::kResync, "resync");
  expect_names(Content::kUnknown, "unknown");
  expect_names(RowPolicy::kMask, "mask");
  EXPECT_STREQ(name_of(ByteFormat::kWebp), "WebP");
  EXPECT_STREQ(name_of(DType::kBfloat16), "bfloat16");
  EXPECT_STREQ(kind_name(FeatureKind::kNone), "no");
}

}  // namespace
}  // namespace fastrec
