// Frames with large values that are decoded from mapped memory.
//
// Goal: the columns equal those of a frame that is copied first; every delivered value
// is verified, even if another process writes to the frame; nothing outside the frame is
// read. Method: records with values of two sizes in many orders and forms, next to guard
// pages; damage in every header and some values; a child process that writes to the
// frame.

#include "decode/mapped_path.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "both_ways.h"
#include "check_columns.h"
#include "guarded_pages.h"
#include "record/frame_runs.h"
#include "records.h"

namespace fastrec {
namespace {

using testing::column_of;
using testing::content_of;
using testing::field_of;
using testing::frame_of;
using testing::GuardedPages;

std::string random_text(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// A feature with one byte string or one packed run.
std::string entry_of(const std::string& key, FeatureKind kind, const std::string& run) {
  const auto number = static_cast<unsigned>(kind);
  return field_of(1,
                  field_of(1, key) + field_of(2, field_of(number, field_of(1, run))));
}

std::string strings_of(const std::string& key,
                       const std::vector<std::string>& strings) {
  std::string list;
  for (const std::string& string : strings) list += field_of(1, string);
  return field_of(1, field_of(1, key) + field_of(2, field_of(1, list)));
}

// `n` is the size of the pixels.
std::shared_ptr<const Schema> schema_of_all(std::size_t n) {
  auto schema = std::make_shared<Schema>();
  using enum FeatureKind;
  schema->columns = {column_of("image", kBytes, Layout::kDense, DType::kBytes, 0),
                     column_of("label", kInt64, Layout::kDense, DType::kInt64, 8),
                     column_of("pixels", kBytes, Layout::kRaw, DType::kUint8, 1),
                     column_of("vector", kFloat, Layout::kDense, DType::kFloat32, 4),
                     column_of("tokens", kInt64, Layout::kRagged, DType::kInt64, 8),
                     column_of("words", kBytes, Layout::kRagged, DType::kBytes, 0),
                     column_of("pages", kBytes, Layout::kRagged, DType::kBytes, 0),
                     column_of("frames", kBytes, Layout::kRagged, DType::kBytes, 0),
                     column_of("steps", kInt64, Layout::kRagged, DType::kInt64, 8)};
  schema->columns[7].reach = Reach{.first = 0, .every = 2, .low = -1, .high = 1};
  schema->columns[8].reach = Reach{.first = 1, .every = 1, .low = 0, .high = 3};
  schema->columns[2].n_values = n;
  schema->columns[3].n_values = n / 4;
  for (ColumnSpec& spec : schema->columns) {
    if (!spec.has_row_splits()) spec = testing::with_default(spec);
  }
  return schema;
}

// Up to six strings, of which the first is large.
std::vector<std::string> frames_of(std::size_t n, std::uint64_t seed) {
  std::vector<std::string> frames(1 + seed % 6);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    frames[i] = random_text(i == 0 || seed % 2 == 0 ? n + 7 * i : i, seed + i);
  }
  return frames;
}

std::vector<std::string> entries_of_all(std::size_t n, std::uint64_t seed) {
  using enum FeatureKind;
  return {entry_of("image", kBytes, random_text(n + 100 + seed % 9, seed)),
          entry_of("label", kInt64, std::string(1, static_cast<char>(seed % 100))),
          entry_of("pixels", kBytes, random_text(n, seed + 1)),
          entry_of("vector", kFloat, random_text(n / 4 * 4, seed + 2)),
          entry_of("tokens", kInt64, std::string(n, '\x05')),
          entry_of("words", kBytes, random_text(n, seed + 3)),
          strings_of("pages", {random_text(n, seed), "", random_text(n + 9, seed + 1)}),
          strings_of("frames", frames_of(n, seed)),
          entry_of("steps", kInt64, std::string(seed % 9, '\x05')),
          entry_of("unwanted", kBytes, random_text(n, seed + 4)),
          entry_of("other", kInt64, "\x07")};
}

std::string record_of(const std::vector<std::string>& entries) {
  std::string all;
  for (const std::string& entry : entries) all += entry;
  return field_of(1, all);
}

class MappedPathTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::vector<std::uint8_t> expected(const std::string& record) {
    builder_.begin(1);
    Buffer buffer;
    const MutableBytes copy = buffer.room(record.size());
    std::ranges::copy(as_bytes(record), copy.begin());
    builder_.begin_record(rows_.first, rows_.last);
    EXPECT_FALSE(reference_.decode_any(BytesWithSlack(copy), 0, &builder_));
    builder_.trim_lists(0);
    return content_of(builder_.finish(1), *schema_);
  }

  // Whether the frame of `record` is decoded at both ends of readable memory. If so,
  // checks the result against the reference decoder.
  bool is_decoded(const std::string& record) {
    const std::string frame = frame_of(record);
    const GuardedPages pages(frame.size());
    bool is_decoded = true;
    for (const MutableBytes bytes :
         {pages.bytes().first(frame.size()), pages.bytes().last(frame.size())}) {
      std::ranges::copy(as_bytes(frame), bytes.begin());
      ExampleDecoder decoder(schema_);
      builder_.begin(1);
      builder_.begin_record(rows_.first, rows_.last);
      is_decoded = decoder.decode_mapped(bytes, 0, &builder_) && is_decoded;
      if (!is_decoded) continue;
      builder_.trim_lists(0);
      const std::vector<std::uint8_t> content =
          content_of(builder_.finish(1), *schema_);
      EXPECT_EQ(content, expected(record));
    }
    return is_decoded;
  }

  std::shared_ptr<const Schema> schema_ = schema_of_all(GetParam());
  RowRange rows_;
  ExampleDecoder reference_{schema_};
  BatchBuilder builder_{schema_, testing::shared_pool()};
};

TEST_P(MappedPathTest, EntriesInAnyOrderGiveTheColumnsOfTheReference) {
  std::mt19937 random(1);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<std::string> entries = entries_of_all(GetParam(), seed);
    std::shuffle(entries.begin(), entries.end(), random);
    rows_ = {0, seed % 3};
    EXPECT_TRUE(is_decoded(record_of(entries))) << seed;
    rows_ = {0, 3};
    entries.resize(1 + random() % entries.size());  // others are missing
    EXPECT_TRUE(is_decoded(record_of(entries))) << seed;
  }
}

TEST_P(MappedPathTest, OnlyTheNeededStringsOfAListAreDelivered) {
  const std::string record = record_of(
      {strings_of("frames", {random_text(GetParam(), 1), "b", "c", "d", "e"})});
  rows_ = {1, 1};  // of step 2: strings 1 to 3
  EXPECT_TRUE(is_decoded(record));
  builder_.begin(1);
  const std::string frame = frame_of(record);
  ASSERT_TRUE(ExampleDecoder(schema_).decode_mapped(as_bytes(frame), 0, &builder_));
  const Batch batch = builder_.finish(1);
  const Column& frames = batch.columns[7];
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(frames.values.data), 3), "bcd");
  const auto* extents = reinterpret_cast<const std::int64_t*>(frames.extents.data);
  EXPECT_EQ(extents[0], 1);
  EXPECT_EQ(extents[1], 5);
  // Past the end, the last string stands for later ones: its number must be known.
  rows_ = {5, 5};
  EXPECT_FALSE(is_decoded(record));
}

TEST_P(MappedPathTest, OddRecordsAreLeftToTheReference) {
  const std::vector<std::string> entries = entries_of_all(GetParam(), 1);
  std::vector<std::string> twice = entries;
  twice.push_back(entries[0]);
  EXPECT_FALSE(is_decoded(record_of(twice)));
  EXPECT_FALSE(is_decoded(record_of(entries) + field_of(3, "more")));
  EXPECT_FALSE(is_decoded(record_of({entries[0]}) + record_of({entries[1]})));
  EXPECT_FALSE(is_decoded(random_text(50'000, 1)));
  // The value before the key.
  const std::string feature = field_of(1, field_of(1, random_text(20'000, 1)));
  EXPECT_FALSE(is_decoded(field_of(1, field_of(1, feature + field_of(1, "image")))));
  // A size or kind that differs from the column.
  using enum FeatureKind;
  EXPECT_FALSE(is_decoded(
      record_of({entry_of("pixels", kBytes, random_text(GetParam() - 1, 1))})));
  EXPECT_FALSE(
      is_decoded(record_of({entry_of("image", kInt64, std::string(20'000, '\1'))})));
}

TEST_P(MappedPathTest, DamageAnywhereIsNoticedAndTheRowIsEmptyThen) {
  const std::string record = record_of(entries_of_all(GetParam(), 2));
  const std::string frame = frame_of(record);
  const std::vector<std::uint8_t> good = expected(record);
  const auto* intact = as_bytes(frame).data();
  std::vector<std::uint8_t> damaged(intact, intact + frame.size());
  ExampleDecoder decoder(schema_);
  for (std::size_t at = 0; at < frame.size(); at += at < 300 ? 1 : 997) {
    damaged[at] ^= 0x04;
    builder_.begin(1);
    builder_.begin_record(0, 0);
    ASSERT_FALSE(decoder.decode_mapped(damaged, 0, &builder_)) << at;
    damaged[at] ^= 0x04;
    // An intact frame, so that the next one is tried as well.
    ASSERT_TRUE(decoder.decode_mapped(damaged, 0, &builder_)) << at;
    builder_.trim_lists(0);
    ASSERT_EQ(content_of(builder_.finish(1), *schema_), good) << at;
  }
}

TEST_P(MappedPathTest, FramesWithoutLargeValuesAreNotTriedForAWhile) {
  const std::string small = frame_of(record_of(
      {entry_of("tokens", FeatureKind::kInt64, std::string(20'000, '\x05'))}));
  const std::string large = frame_of(record_of(entries_of_all(GetParam(), 3)));
  ExampleDecoder decoder(schema_);
  builder_.begin(100);
  for (std::size_t row = 0; row < 8; ++row) {
    ASSERT_TRUE(decoder.decode_mapped(as_bytes(small), row, &builder_));
  }
  EXPECT_FALSE(decoder.decode_mapped(as_bytes(large), 8, &builder_));
}

TEST_P(MappedPathTest, WhatIsDeliveredIsProvenWhileAnotherProcessWrites) {
  const std::string records[] = {record_of(entries_of_all(GetParam(), 9)),
                                 record_of(entries_of_all(GetParam(), 27))};
  const std::vector<std::uint8_t> contents[] = {expected(records[0]),
                                                expected(records[1])};
  const std::string frames[] = {frame_of(records[0]), frame_of(records[1])};
  ASSERT_EQ(frames[0].size(), frames[1].size());
  void* const shared = ::mmap(nullptr, frames[0].size(), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::memcpy(shared, frames[0].data(), frames[0].size());
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    for (std::size_t i = 1; ::getppid() == parent; ++i) {
      std::memcpy(shared, frames[i % 2].data(), frames[i % 2].size());
      if (i % 16 == 0) ::usleep(100);
    }
    ::_exit(0);
  }
  const Bytes frame(static_cast<const std::uint8_t*>(shared), frames[0].size());
  std::size_t n_delivered = 0;
  for (int i = 0; i < 3000; ++i) {
    ExampleDecoder decoder(schema_);  // tries every frame
    builder_.begin(1);
    if (!decoder.decode_mapped(frame, 0, &builder_)) continue;
    ++n_delivered;
    builder_.trim_lists(0);
    const std::vector<std::uint8_t> content = content_of(builder_.finish(1), *schema_);
    ASSERT_TRUE(content == contents[0] || content == contents[1]);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::munmap(shared, frame.size());
  RecordProperty("delivered", static_cast<int>(n_delivered));
}

INSTANTIATE_TEST_SUITE_P(Sizes, MappedPathTest, ::testing::Values(600, 20'000));

}  // namespace
}  // namespace fastrec
