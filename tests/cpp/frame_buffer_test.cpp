// FrameBuffer and FeatureOrder.
//
// Goal: frames are valid and in order, with correct offsets; frames that were taken
// never change. Method: files written by hand.

#include "encode/frame_buffer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "encode/feature_order.h"
#include "records.h"

namespace fastrec {
namespace {

std::shared_ptr<BlockPool> pool() { return std::make_shared<BlockPool>(1 << 20); }

std::string text_of(const Frames& frames) {
  return std::string(as_text(frames.bytes()));
}

TEST(FrameBuffer, HoldsTheFramesOfAllSizesInOrder) {
  std::vector<std::string> payloads;
  for (const std::size_t size : {0u, 1u, 5u, 4095u, 4096u, 100'000u, 3u}) {
    payloads.emplace_back(size, static_cast<char>('a' + payloads.size()));
  }
  FrameBuffer buffer(pool());
  for (const std::string& payload : payloads) buffer.add(as_bytes(payload));
  EXPECT_EQ(buffer.n_records(), payloads.size());
  const Frames frames = buffer.take();
  EXPECT_EQ(text_of(frames), testing::file_of(payloads));
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    EXPECT_EQ(frames.offsets[i], offset);
    offset += payloads[i].size() + kFrameBytes;
  }
  EXPECT_EQ(frames.offsets.back(), offset);
}

TEST(FrameBuffer, WhatWasTakenStaysAsItIs) {
  FrameBuffer buffer(pool());
  EXPECT_EQ(buffer.take().n_records(), 0u);
  buffer.add(as_bytes(std::string(5000, 'x')));
  const Frames first = buffer.take();
  EXPECT_EQ(buffer.n_records(), 0u);
  EXPECT_EQ(buffer.n_bytes(), 0u);
  for (int i = 0; i < 10; ++i) buffer.add(as_bytes(std::string(5000, 'y')));
  EXPECT_EQ(text_of(first), testing::file_of({std::string(5000, 'x')}));
}

TEST(FrameBuffer, FramesAreCopiedInAnyOrder) {
  const std::string file = testing::file_of({"a", "bb", ""});
  const std::vector<std::int64_t> offsets = {0, 17, 35, 51};
  const std::vector<std::int64_t> chosen = {2, 0, 1, 0};
  FrameBuffer buffer(pool());
  buffer.add_frames(as_bytes(file), offsets, chosen);
  EXPECT_EQ(text_of(buffer.take()), testing::file_of({"", "a", "bb", "a"}));
}

TEST(FrameBuffer, StopsAddingRowsWhenItHasEnough) {
  const std::vector<std::int64_t> values(1000, 7);
  ColumnValues column;
  column.key = "x";
  column.values = {reinterpret_cast<const std::uint8_t*>(values.data()), 8000};
  const BatchEncoder encoder({column}, values.size());
  FrameBuffer buffer(pool());
  std::size_t row = 1;
  std::size_t n_records = 0;
  while (row < values.size()) {
    row = buffer.add_rows(encoder, row, values.size(), 3, 1000);
    n_records += buffer.n_records();
    EXPECT_EQ(row, 1 + 3 * n_records);
    EXPECT_TRUE(row >= values.size() || buffer.n_bytes() >= 1000u);
    EXPECT_LT(buffer.n_bytes(), 1100u);
    buffer.take();
  }
  EXPECT_EQ(n_records, 333u);
}

TEST(FeatureOrder, RemembersPlacesAndKinds) {
  FeatureOrder order;
  const auto place = [&](const std::string& key, FeatureKind kind) {
    const FeatureOrder::Place found = order.place(as_bytes(key), kind);
    return std::pair(found.position, found.kind);
  };
  using enum FeatureKind;
  EXPECT_EQ(place("a", kFloat), std::pair(std::size_t{0}, kFloat));
  EXPECT_EQ(place("b", kNone), std::pair(std::size_t{1}, kNone));
  EXPECT_EQ(place("", kBytes), std::pair(std::size_t{2}, kBytes));
  EXPECT_EQ(place("b", kInt64), std::pair(std::size_t{1}, kInt64));
  EXPECT_EQ(place("a", kInt64), std::pair(std::size_t{0}, kFloat));
  EXPECT_EQ(place("", kNone), std::pair(std::size_t{2}, kBytes));
  EXPECT_EQ(place("a", kNone), std::pair(std::size_t{0}, kFloat));
}

}  // namespace
}  // namespace fastrec
