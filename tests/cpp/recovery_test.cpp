// Tests of FrameWalk on damaged files.
//
// Goal: frames and gaps cover the file exactly, with both kinds of I/O, for walks and
// for indexes; a search returns only frames with two valid checksums. Method: random
// files with random damage. tests/core/test_recovery.py compares the surviving records
// with an oracle.

#include "record/recovery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "record/index.h"
#include "record/scan.h"
#include "records.h"

namespace fastrec {
namespace {

using testing::frame_of;

std::string damaged_file(std::mt19937* random) {
  std::string file;
  const std::size_t n_records = 1 + (*random)() % 30;
  for (std::size_t i = 0; i < n_records; ++i) {
    std::string payload((*random)() % 100, '\0');
    for (char& byte : payload) byte = static_cast<char>((*random)());
    file += frame_of(payload);
  }
  for (unsigned n = (*random)() % 4; n > 0 && !file.empty(); --n) {
    const std::size_t at = (*random)() % file.size();
    const std::size_t length =
        std::min<std::size_t>((*random)() % 60, file.size() - at);
    switch ((*random)() % 4) {
      case 0:
        file[at] ^= 0x20;
        break;
      case 1:
        file.erase(at, length);
        break;
      case 2:
        file.insert(at, file.substr((*random)() % file.size(), length));
        break;
      default:
        std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(at), length, '\0');
    }
  }
  return file;
}

TEST(FrameWalk, AWalkOfValidFramesCanBeCancelled) {
  const testing::TemporaryDirectory directory;
  const FileView view(directory.write("data", frame_of("a")), Io::kAuto);
  ScanProgress progress;
  progress.cancelled = true;
  FrameWalk frames(Recovery::kNone, &progress);
  frames.start(view);
  Frame frame;
  EXPECT_THROW(frames.next(&frame), ScanCancelled);
}

using Span = std::pair<std::uint64_t, std::uint64_t>;

struct Walked {
  std::vector<Span> frames, gaps;
  bool operator==(const Walked&) const = default;
};

Walked walk(const FileView& view, Recovery recovery) {
  FrameWalk frames(recovery);
  frames.start(view);
  Walked walked;
  for (Frame frame; frames.next(&frame);) {
    walked.frames.emplace_back(frame.offset, frame.end());
  }
  for (const SkippedSpan& gap : frames.take_gaps())
    walked.gaps.emplace_back(gap.begin, gap.end);
  EXPECT_FALSE(frames.has_gaps());
  return walked;
}

Walked indexed(const Index& index) {
  Walked walked;
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    walked.frames.emplace_back(index.frame(i).offset, index.frame(i).end());
  }
  for (const SkippedSpan& gap : index.gaps())
    walked.gaps.emplace_back(gap.begin, gap.end);
  return walked;
}

TEST(Recovery, FramesAndGapsCoverTheFile) {
  const testing::TemporaryDirectory directory;
  std::mt19937 random(20261121);
  for (int round = 0; round < 500; ++round) {
    const std::string file = damaged_file(&random);
    const std::string path = directory.write("data", file);
    for (const Recovery recovery : {Recovery::kSkip, Recovery::kResync}) {
      const FileView mapped(path, Io::kMmap), read(path, Io::kPread);
      const Walked walked = walk(mapped, recovery);
      EXPECT_EQ(walk(read, recovery), walked);
      ScanProgress progress;
      const Index index = Index::build(mapped, 2, &progress, recovery);
      EXPECT_EQ(indexed(index), walked);
      EXPECT_EQ(indexed(Index::build(read, 1, &progress, recovery)), walked);

      std::vector<Span> all = walked.frames;
      all.insert(all.end(), walked.gaps.begin(), walked.gaps.end());
      std::sort(all.begin(), all.end());
      std::uint64_t at = 0;
      for (const auto& [begin, end] : all) {
        EXPECT_EQ(begin, at);
        at = end;
      }
      EXPECT_EQ(at, file.size());
      for (const auto& [begin, end] : walked.gaps) {
        if (end == file.size()) continue;
        EXPECT_EQ(recovery, Recovery::kResync);
        const auto found =
            std::find_if(walked.frames.begin(), walked.frames.end(),
                         [end = end](const Span& frame) { return frame.first == end; });
        ASSERT_NE(found, walked.frames.end());
        EXPECT_FALSE(check_payload(as_bytes(file).subspan(
            found->first, static_cast<std::size_t>(found->second - found->first))));
      }
    }
  }
}

TEST(Recovery, ASearchCanBeCancelled) {
  const testing::TemporaryDirectory directory;
  std::string file = frame_of("first") + frame_of("second");
  file[3] ^= 1;
  const std::string path = directory.write("data", file);
  ScanProgress progress;
  progress.cancelled = true;
  const FileView view(path, Io::kPread);
  EXPECT_THROW(Index::build(view, 1, &progress, Recovery::kResync), ScanCancelled);
  FrameWalk frames(Recovery::kResync, &progress);
  frames.start(view);
  Frame frame;
  EXPECT_THROW(frames.next(&frame), ScanCancelled);
}

TEST(Recovery, WithoutRecoveryTheErrorFollowsTheFrames) {
  const testing::TemporaryDirectory directory;
  std::string file = frame_of("first") + frame_of("second");
  file[frame_of("first").size()] ^= 1;
  const FileView view(directory.write("data", file), Io::kMmap);
  FrameWalk frames(Recovery::kNone);
  frames.start(view);
  Frame frame;
  ASSERT_TRUE(frames.next(&frame));
  EXPECT_EQ(frame.length, 5u);
  EXPECT_THROW(frames.next(&frame), Error);
}

TEST(Recovery, EveryFlippedBitOfAHeaderIsRepaired) {
  for (const std::string& payload : {std::string(), std::string(70000, 'x')}) {
    const std::string frame = frame_of(payload);
    for (unsigned bit = 0; bit < 8 * kHeaderBytes; ++bit) {
      std::string flipped = frame;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
      const auto repaired = [&](std::uint64_t remaining, bool holds) {
        return repair_header(as_bytes(flipped).data(), remaining,
                             [&](std::uint64_t length) {
                               EXPECT_EQ(length, payload.size());
                               return holds;
                             });
      };
      const auto repair = repaired(frame.size(), true);
      ASSERT_TRUE(repair) << bit;
      EXPECT_EQ(repair->bit, bit);
      EXPECT_EQ(repair->length, payload.size());
      EXPECT_FALSE(repaired(frame.size(), false));
      EXPECT_FALSE(repaired(frame.size() - 1, true));
      EXPECT_FALSE(repaired(kHeaderBytes, true));
    }
  }
}

TEST(Recovery, TwoFlippedBitsAreNotRepaired) {
  const std::string frame = frame_of("payload");
  for (unsigned first = 0; first < 8 * kHeaderBytes; ++first) {
    for (unsigned second = 0; second <= first; ++second) {
      std::string flipped = frame;  // flipping one bit twice restores the header
      flipped[first / 8] = static_cast<char>(flipped[first / 8] ^ 1 << first % 8);
      flipped[second / 8] = static_cast<char>(flipped[second / 8] ^ 1 << second % 8);
      EXPECT_FALSE(repair_header(as_bytes(flipped).data(), 1 << 20,
                                 [](std::uint64_t) { return true; }));
    }
  }
}

TEST(Recovery, OnlyAHeaderIsRepaired) {
  const testing::TemporaryDirectory directory;
  const std::string first = frame_of("first"), nested = frame_of(frame_of("inner"));
  const std::string file = first + nested + frame_of("last");
  const auto spans = [&](std::size_t byte) {
    std::string flipped = file;
    flipped[byte] ^= 0x10;
    const std::string path = directory.write("data", flipped);
    return walk(FileView(path, Io::kMmap), Recovery::kRepair);
  };
  const Walked whole =
      walk(FileView(directory.write("data", file), Io::kPread), Recovery::kRepair);
  EXPECT_EQ(whole.frames.size(), 3u);
  for (std::size_t byte = 0; byte < kHeaderBytes; ++byte) {
    EXPECT_EQ(spans(byte), whole);
    EXPECT_EQ(spans(first.size() + byte), whole) << "the frame inside is not found";
  }
  // A header between a damaged and an intact payload verifies the boundary.
  std::string flipped = file;
  flipped[kHeaderBytes] ^= 1;
  flipped[first.size()] ^= 1;
  const FileView view(directory.write("data", flipped), Io::kMmap);
  EXPECT_EQ(walk(view, Recovery::kRepair), whole);
}

// 4000 valid headers with damaged payloads of about 1 MiB would cost 4 GiB of reads.
// The search stops before it reaches the intact frame after them.
TEST(Recovery, ASearchStopsAfterTooManyDamagedPayloads) {
  const testing::TemporaryDirectory directory;
  const std::string good = frame_of("good");
  for (const std::size_t n_headers : {std::size_t{10}, std::size_t{4000}}) {
    const std::uint64_t length = 1 << 20;
    std::string file(1, '!');
    for (std::size_t i = 0; i < n_headers; ++i) file += testing::header_of(length);
    file += std::string(length, '?') + good;
    const FileView view(directory.write("data", file), Io::kMmap);
    FrameWalk frames(Recovery::kResync);
    frames.start(view);
    Frame frame;
    EXPECT_EQ(frames.next(&frame), n_headers == 10);
    const std::vector<SkippedSpan> gaps = frames.take_gaps();
    ASSERT_EQ(gaps.size(), 1u);
    EXPECT_EQ(gaps[0].error.reason.find("was stopped after") != std::string::npos,
              n_headers == 4000)
        << gaps[0].error.reason;
    EXPECT_EQ(gaps[0].end, file.size() - (n_headers == 10 ? good.size() : 0));
  }
}

}  // namespace
}  // namespace fastrec
