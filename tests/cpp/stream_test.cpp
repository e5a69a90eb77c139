// Tests of ByteStreams and FrameStream.
//
// Goal: the frames do not depend on the chunks, producers respect their limits, stop()
// wakes all threads, and a shuffle window delivers its order. Method: handmade frames,
// pushed in chunks of every size; producers and consumer on separate threads.

#include "record/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "claim_steps.h"
#include "loader/claims.h"
#include "loader/window.h"
#include "record/reader.h"
#include "record/scan.h"
#include "records.h"

namespace fastrec {
namespace {

using namespace std::chrono_literals;

std::vector<std::uint8_t> frames_of(const std::vector<std::string>& payloads) {
  const std::string file = testing::file_of(payloads);
  return {file.begin(), file.end()};
}

const std::vector<std::string> kPayloads = {"", "a", std::string(300, 'b'), "cc", ""};

std::shared_ptr<FileTable> names(std::size_t n) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < n; ++i) paths.push_back("file" + std::to_string(i));
  return std::make_shared<FileTable>(std::move(paths), std::vector<Io>{Io::kAuto});
}

// Waits for the next bytes of the current stream.
bool take(ByteStreams* streams, std::vector<std::uint8_t>* chunk) {
  return streams->pop(1h, chunk) == ByteStreams::PopResult::kBytes;
}

// Pushes `bytes` as each stream, in pieces of `size`.
void produce(ByteStreams* streams, Bytes bytes, std::size_t size) {
  while (const auto stream = streams->begin()) {
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      const Bytes piece = bytes.subspan(at, std::min(size, bytes.size() - at));
      if (!streams->push(*stream, piece)) return;
    }
    streams->end(*stream);
  }
}

TEST(FrameStream, TheFramesDoNotDependOnTheChunks) {
  const std::vector<std::uint8_t> bytes = frames_of(kPayloads);
  for (const std::size_t size : {1u, 2u, 11u, 12u, 13u, 16u, 100u, 1000u}) {
    auto streams = std::make_shared<ByteStreams>(3, 2, 64);
    std::thread one([&] { produce(streams.get(), bytes, size); });
    std::thread two([&] { produce(streams.get(), bytes, size); });
    FrameStream frames(streams, names(3), {2, 0, 1});
    for (const std::size_t file : {2u, 0u, 1u}) {
      std::uint64_t offset = 0;
      for (std::uint64_t i = 0; i < kPayloads.size(); ++i) {
        StreamRecord record;
        ASSERT_TRUE(frames.next(&record));
        EXPECT_FALSE(record.fault);
        EXPECT_EQ(as_text(record.payload()), kPayloads[i]);
        EXPECT_EQ(record.place.file, file);
        EXPECT_EQ(record.place.record, i);
        EXPECT_EQ(record.place.frame.offset, offset);
        offset = record.place.frame.end();
      }
    }
    StreamRecord none;
    EXPECT_FALSE(frames.next(&none));
    EXPECT_FALSE(frames.next(&none));
    one.join();
    two.join();
  }
}

TEST(FrameStream, AnExceptionFollowsTheFramesBeforeIt) {
  const std::vector<std::uint8_t> bytes = frames_of(kPayloads);
  for (const Recovery recovery : {Recovery::kNone, Recovery::kSkip}) {
    for (const auto& failure : {std::make_exception_ptr(IoError(5, "file0")),
                                std::make_exception_ptr(std::bad_alloc())}) {
      auto streams = std::make_shared<ByteStreams>(1, 1, 1 << 20);
      ASSERT_EQ(streams->begin(), 0u);
      ASSERT_TRUE(streams->push(0, bytes));
      streams->fail(0, failure);
      FrameStream frames(streams, names(1), {0}, {}, recovery);
      StreamRecord record;
      for (std::size_t i = 0; i < kPayloads.size(); ++i) {
        ASSERT_TRUE(frames.next(&record));
      }
      for (int i = 0; i < 2; ++i) {
        try {
          (void)frames.next(&record);
          FAIL();
        } catch (...) {
          EXPECT_EQ(std::current_exception(), failure);
        }
      }
    }
  }
}

TEST(FrameStream, StopInAFrameLeavesNoGap) {
  const std::vector<std::uint8_t> bytes = frames_of({std::string(300, 'b')});
  for (const Recovery recovery : {Recovery::kNone, Recovery::kSkip}) {
    auto streams = std::make_shared<ByteStreams>(1, 1, 1 << 20);
    ASSERT_EQ(streams->begin(), 0u);
    ASSERT_TRUE(streams->push(0, Bytes(bytes).first(100)));
    const auto on_wait = [&] { streams->stop(); };
    FrameStream frames(streams, names(1), {0}, on_wait, recovery);
    EXPECT_THROW((void)index_of(&frames), ScanCancelled);
    EXPECT_FALSE(frames.has_gaps());
  }
}

TEST(FrameStream, ALengthBeyondAnyStreamIsReported) {
  const std::uint64_t length = ~std::uint64_t{0} - 3;
  const std::string header = testing::header_of(length);
  auto streams = std::make_shared<ByteStreams>(1, 1, 1 << 20);
  produce(streams.get(), as_bytes(header), header.size());
  FrameStream frames(streams, names(1), {0});
  try {
    StreamRecord record;
    (void)frames.next(&record);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::kRecordTooLarge);
    EXPECT_NE(error.reason.find(std::to_string(length)), std::string::npos)
        << error.reason;
  }
}

TEST(FrameStream, RecordsOverTheMemoryLimitAreErrors) {
  const std::vector<std::uint8_t> bytes = frames_of({"x", std::string(1000, 'y')});
  auto streams = std::make_shared<ByteStreams>(1, 1, 1 << 20);
  ASSERT_EQ(streams->begin(), 0u);
  ASSERT_TRUE(streams->push(0, bytes));
  streams->end(0);
  FrameStream frames(streams, names(1), {0});
  std::vector<std::uint8_t> held;
  Place place;
  ASSERT_TRUE(frames.next(1032, &place, &held));
  try {
    (void)frames.next(1032, &place, &held);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::kRecordTooLarge);
    EXPECT_EQ(error.record, 1u);
    EXPECT_EQ(error.offset, 17u);
  }
}

TEST(ByteStreams, AProducerWaitsForRoom) {
  ByteStreams streams(4, 2, 100);
  std::atomic<int> n_pushed{0};
  const std::vector<std::uint8_t> piece(60);
  const auto fill = [&] {
    while (const auto stream = streams.begin()) {
      for (int i = 0; i < 5; ++i) {
        if (!streams.push(*stream, piece)) return;
        ++n_pushed;
      }
      streams.end(*stream);
    }
  };
  std::thread one(fill), two(fill);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(n_pushed, 4);  // two for each of the two streams that may be open
  std::vector<std::uint8_t> chunk;
  int n_taken = 0;
  for (int i = 0; i < 4; ++i, streams.advance()) {
    while (take(&streams, &chunk)) ++n_taken;
  }
  EXPECT_EQ(n_taken, 20);
  EXPECT_FALSE(take(&streams, &chunk));
  one.join();
  two.join();
}

TEST(ByteStreams, StopWakesAllThreads) {
  ByteStreams full(2, 1, 1), empty(1, 1, 1);
  const std::vector<std::uint8_t> piece(10);
  ASSERT_EQ(full.begin(), 0u);  // the next call must wait
  std::thread producer([&] {
    while (full.push(0, piece)) continue;
    full.end(0);
    EXPECT_EQ(full.begin(), std::nullopt);
  });
  std::thread waiting([&] { EXPECT_EQ(full.begin(), std::nullopt); });
  std::thread consumer([&] {
    std::vector<std::uint8_t> chunk;
    EXPECT_FALSE(take(&empty, &chunk));
  });
  std::this_thread::sleep_for(20ms);
  full.stop();
  empty.stop();
  producer.join();
  waiting.join();
  consumer.join();
}

TEST(ByteStreams, PopHasATimeout) {
  ByteStreams streams(1, 1, 100);
  std::vector<std::uint8_t> chunk;
  EXPECT_EQ(streams.pop(1ms, &chunk), ByteStreams::PopResult::kTimeout);
  ASSERT_EQ(streams.begin(), 0u);
  EXPECT_EQ(streams.pop(1ms, &chunk), ByteStreams::PopResult::kTimeout);
  ASSERT_TRUE(streams.push(0, std::vector<std::uint8_t>(3)));
  EXPECT_EQ(streams.pop(1ms, &chunk), ByteStreams::PopResult::kBytes);
  EXPECT_EQ(chunk.size(), 3u);
  streams.end(0);
  EXPECT_EQ(streams.pop(1ms, &chunk), ByteStreams::PopResult::kEnd);
}

TEST(ByteStreams, ChunksAreRecycled) {
  ByteStreams streams(1, 1, 1000);
  ASSERT_EQ(streams.begin(), 0u);
  const std::vector<std::uint8_t> large(500, 'a'), small(20, 'b');
  ASSERT_TRUE(streams.push(0, large));
  ASSERT_TRUE(streams.push(0, large));
  std::vector<std::uint8_t> chunk;
  ASSERT_TRUE(take(&streams, &chunk));
  const std::uint8_t* memory = chunk.data();
  ASSERT_TRUE(take(&streams, &chunk));
  ASSERT_TRUE(streams.push(0, small));
  ASSERT_TRUE(take(&streams, &chunk));
  EXPECT_EQ(chunk.data(), memory);
  EXPECT_EQ(chunk, small);
}

TEST(ByteStreams, PushReturnsFalseAfterAdvance) {
  ByteStreams streams(3, 2, 100);
  ASSERT_EQ(streams.begin(), 0u);
  streams.advance();  // before its end
  EXPECT_FALSE(streams.push(0, std::vector<std::uint8_t>(1)));
  streams.end(0);
  streams.advance();  // before begin()
  ASSERT_EQ(streams.begin(), 2u);
  EXPECT_TRUE(streams.push(2, std::vector<std::uint8_t>(1)));
  std::vector<std::uint8_t> chunk;
  EXPECT_TRUE(take(&streams, &chunk));
  streams.advance();
  EXPECT_EQ(streams.begin(), std::nullopt);
}

TEST(FrameStream, CallsOnWaitWhileItWaits) {
  auto streams = std::make_shared<ByteStreams>(1, 1, 100);
  int n_looks = 0;
  FrameStream frames(streams, names(1), {0}, [&] {
    if (++n_looks == 2) throw std::runtime_error("enough");
  });
  StreamRecord record;
  EXPECT_THROW(frames.next(&record), std::runtime_error);
}

TEST(FrameStream, AnExceptionFromOnWaitStopsTheStreams) {
  const std::vector<std::uint8_t> bytes = frames_of({std::string(300, 'b')});
  auto streams = std::make_shared<ByteStreams>(1, 1, 100);
  ASSERT_EQ(streams->begin(), 0u);
  ASSERT_TRUE(streams->push(0, Bytes(bytes).first(100)));
  FrameStream frames(streams, names(1), {0},
                     [] { throw std::runtime_error("enough"); });
  StreamRecord record;
  EXPECT_THROW(frames.next(&record), std::runtime_error);
  // Nothing is read from the middle of a frame.
  EXPECT_THROW(frames.next(&record), ScanCancelled);
  EXPECT_FALSE(streams->push(0, Bytes(bytes).subspan(100)));
}

// The records of `claims`, whose payloads are their numbers in digits.
std::vector<int> claimed(Claims* claims) {
  std::vector<int> numbers;
  Claim claim;
  while (testing::claim_step(claims, &claim)) {
    VerifiedBlock block{claim.bytes.data() + Buffer::kSlackBytes, claim.frames.lengths};
    while (!block.empty()) {
      const Bytes payload = block.pop();
      numbers.push_back(std::stoi(std::string(as_text(payload))));
    }
  }
  return numbers;
}

std::shared_ptr<ByteStreams> numbered(int n) {
  std::vector<std::string> payloads;
  for (int i = 0; i < n; ++i) payloads.push_back(std::to_string(i));
  auto streams = std::make_shared<ByteStreams>(1, 1, 1 << 20);
  (void)streams->begin();
  (void)streams->push(0, frames_of(payloads));
  streams->end(0);
  return streams;
}

StepGrid steps_of(std::uint64_t batch_size) {
  StepGrid grid;
  grid.batch_size = batch_size;
  return grid;
}

TEST(StreamClaims, AWindowDeliversItsOrder) {
  constexpr int n = 100;
  for (const std::uint64_t n_slots : {1u, 2u, 7u, 99u, 100u, 1000u}) {
    const WindowOrder order({{0, n}}, n_slots, 5);
    std::vector<std::uint64_t> wanted(n);
    for (std::uint64_t i = 0; i < n; ++i) wanted[i] = i;
    order.to_records(wanted);
    for (const std::uint64_t batch_size : {1u, 8u, 200u}) {
      StreamClaims claims(FrameStream(numbered(n), names(1), {0}), steps_of(batch_size),
                          {.bytes_max = 1 << 20}, WindowDraws(n_slots, 5));
      const std::vector<int> got = claimed(&claims);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()));
    }
  }
}

TEST(StreamClaims, AWindowRespectsItsMemoryLimit) {
  // A frame with a payload of one digit has 17 bytes.
  StreamClaims fits(FrameStream(numbered(10), names(1), {0}), steps_of(2),
                    {.bytes_max = 9 * 17}, WindowDraws(8, 0));
  EXPECT_EQ(claimed(&fits).size(), 10u);
  StreamClaims large(FrameStream(numbered(10), names(1), {0}), steps_of(2),
                     {.bytes_max = 7 * 17}, WindowDraws(8, 0));
  Claim claim;
  EXPECT_THROW(testing::claim_step(&large, &claim), Error);
}

TEST(StreamClaims, StopEndsAWait) {
  auto streams = std::make_shared<ByteStreams>(1, 1, 100);
  StreamClaims claims(FrameStream(streams, names(1), {0}), steps_of(2),
                      {.bytes_max = 1000}, {});
  std::thread waiting([&] {
    Claim claim;
    EXPECT_FALSE(testing::claim_step(&claims, &claim));
  });
  std::this_thread::sleep_for(20ms);
  claims.stop();
  waiting.join();
}

// A finished stream of `bytes`.
std::shared_ptr<ByteStreams> stream_of(Bytes bytes, std::size_t size) {
  auto streams = std::make_shared<ByteStreams>(1, 1, 1 << 20);
  produce(streams.get(), bytes, size);
  return streams;
}

TEST(StreamIndex, DoesNotDependOnTheChunks) {
  const std::vector<std::uint8_t> bytes = frames_of(kPayloads);
  for (std::size_t size = 1; size <= bytes.size(); ++size) {
    FrameStream stream(stream_of(bytes, size), names(1), {0});
    const StreamIndex index = index_of(&stream);
    EXPECT_EQ(stream.n_bytes(), bytes.size());
    ASSERT_EQ(index.offsets.size(), kPayloads.size() + 1);
    ASSERT_EQ(index.payload_crcs.size(), kPayloads.size());
    for (std::size_t i = 0; i < kPayloads.size(); ++i) {
      const std::uint64_t begin = index.offsets[i], end = index.offsets[i + 1];
      EXPECT_EQ(end - begin, kPayloads[i].size() + kFrameBytes);
      EXPECT_EQ(index.payload_crcs[i],
                load_le<std::uint32_t>(bytes.data() + end - kFooterBytes));
    }
  }
}

TEST(StreamIndex, EveryTruncationIsAnError) {
  const std::vector<std::uint8_t> bytes = frames_of(kPayloads);
  FrameStream whole(stream_of(bytes, 7), names(1), {0});
  const std::vector<std::uint64_t> ends = index_of(&whole).offsets;
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    FrameStream stream(stream_of(Bytes(bytes).first(n), 7), names(1), {0});
    if (std::find(ends.begin(), ends.end(), n) != ends.end()) {
      EXPECT_NO_THROW((void)index_of(&stream));
    } else {
      EXPECT_THROW((void)index_of(&stream), Error);
    }
  }
}

}  // namespace
}  // namespace fastrec
