// Streams: bytes in order -> frames.
//
// Goal: frames come out the same however the bytes were cut, a producer never runs
// ahead further than it may, and stop() wakes everybody. Method: frames made by
// append_frame, pushed in pieces of every size; producers and consumer on threads of
// their own.

#include "record/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "record/append.h"

namespace fastrec {
namespace {

using namespace std::chrono_literals;

std::vector<std::uint8_t> frames_of(const std::vector<std::string>& payloads) {
  std::vector<std::uint8_t> frames;
  for (const std::string& payload : payloads) append_frame(as_bytes(payload), &frames);
  return frames;
}

const std::vector<std::string> kPayloads = {"", "a", std::string(300, 'b'), "cc", ""};

std::shared_ptr<FileTable> names(std::size_t n) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < n; ++i) paths.push_back("file" + std::to_string(i));
  return std::make_shared<FileTable>(std::move(paths), std::vector<Io>{Io::kAuto});
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

TEST(FrameStream, GivesTheSameFramesForPiecesOfAnySize) {
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
        ASSERT_TRUE(record.read_from(&frames));
        EXPECT_EQ(as_text(record.payload()), kPayloads[i]);
        EXPECT_EQ(record.place().file, file);
        EXPECT_EQ(record.place().record, i);
        EXPECT_EQ(record.place().frame.offset, offset);
        offset = record.place().frame.end();
      }
    }
    StreamRecord none;
    EXPECT_FALSE(none.read_from(&frames));
    EXPECT_FALSE(none.read_from(&frames));
    one.join();
    two.join();
  }
}

TEST(FrameStream, AFailureComesAfterTheFramesBeforeIt) {
  const std::vector<std::uint8_t> bytes = frames_of(kPayloads);
  auto streams = std::make_shared<ByteStreams>(1, 1, 1 << 20);
  ASSERT_EQ(streams->begin(), 0u);
  ASSERT_TRUE(streams->push(0, bytes));
  streams->fail(0, std::make_exception_ptr(IoError(5, "file0")));
  FrameStream frames(streams, names(1), {0});
  StreamRecord record;
  for (std::size_t i = 0; i < kPayloads.size(); ++i) {
    ASSERT_TRUE(record.read_from(&frames));
  }
  EXPECT_THROW(record.read_from(&frames), IoError);
  EXPECT_THROW(record.read_from(&frames), IoError);
}

TEST(FrameStream, RefusesWhatWouldTakeTooMuch) {
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
    while (streams.take(&chunk)) ++n_taken;
  }
  EXPECT_EQ(n_taken, 20);
  EXPECT_FALSE(streams.take(&chunk));
  one.join();
  two.join();
}

TEST(ByteStreams, StopWakesEverybody) {
  ByteStreams full(2, 1, 1), empty(1, 1, 1);
  const std::vector<std::uint8_t> piece(10);
  std::thread producer([&] {
    ASSERT_EQ(full.begin(), 0u);
    while (full.push(0, piece)) continue;
    full.end(0);
    EXPECT_EQ(full.begin(), std::nullopt);
  });
  std::thread waiting([&] { EXPECT_EQ(full.begin(), std::nullopt); });
  std::thread consumer([&] {
    std::vector<std::uint8_t> chunk;
    EXPECT_FALSE(empty.take(&chunk));
  });
  std::this_thread::sleep_for(20ms);
  full.stop();
  empty.stop();
  producer.join();
  waiting.join();
  consumer.join();
}

TEST(StreamScan, FindsTheSameInPiecesOfAnySize) {
  const std::vector<std::uint8_t> bytes = frames_of(kPayloads);
  for (std::size_t size = 1; size <= bytes.size(); ++size) {
    StreamScan scan("file0");
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      scan.feed(Bytes(bytes).subspan(at, std::min(size, bytes.size() - at)));
    }
    scan.finish();
    ASSERT_EQ(scan.offsets().size(), kPayloads.size() + 1);
    ASSERT_EQ(scan.payload_crcs().size(), kPayloads.size());
    for (std::size_t i = 0; i < kPayloads.size(); ++i) {
      const std::uint64_t begin = scan.offsets()[i], end = scan.offsets()[i + 1];
      EXPECT_EQ(end - begin, kPayloads[i].size() + kFrameBytes);
      EXPECT_EQ(scan.payload_crcs()[i],
                load_le<std::uint32_t>(bytes.data() + end - kFooterBytes));
    }
  }
}

TEST(StreamScan, ACutIsNoticedWhereverItIs) {
  const std::vector<std::uint8_t> bytes = frames_of(kPayloads);
  StreamScan whole("file0");
  whole.feed(bytes);
  const std::vector<std::uint64_t>& ends = whole.offsets();
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    StreamScan scan("file0");
    scan.feed(Bytes(bytes).first(n));
    if (std::find(ends.begin(), ends.end(), n) != ends.end()) {
      EXPECT_NO_THROW(scan.finish());
    } else {
      EXPECT_THROW(scan.finish(), Error);
    }
  }
}

}  // namespace
}  // namespace fastrec
