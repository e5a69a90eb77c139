// Tests of Examination.
//
// Goal: the result equals that of a sequential walk for any piece size. Method: random
// files with random damage and with payloads that contain TFRecord files, in pieces of
// many sizes. tests/cli/test_verify.py compares the findings with an oracle.

#include "record/examination.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "records.h"

namespace fastrec {
namespace {

using testing::file_of;
using testing::frame_of;

std::string random_file(std::mt19937* random, int depth = 0) {
  std::string file;
  for (std::size_t n = 1 + (*random)() % 20; n > 0; --n) {
    std::string payload((*random)() % 100, '\0');
    for (char& byte : payload) byte = static_cast<char>((*random)());
    if (depth == 0 && (*random)() % 8 == 0) payload += random_file(random, 1);
    file += frame_of(payload);
  }
  return file;
}

void damage(std::string* file, std::mt19937* random) {
  const std::size_t at = (*random)() % file->size();
  const std::size_t length = std::min<std::size_t>((*random)() % 60, file->size() - at);
  switch ((*random)() % 4) {
    case 0:
      (*file)[at] = static_cast<char>((*file)[at] ^ 1 << (*random)() % 8);
      break;
    case 1:
      file->erase(at, length);
      break;
    case 2:
      file->insert(at, file->substr((*random)() % file->size(), length));
      break;
    default:
      std::fill_n(file->begin() + static_cast<std::ptrdiff_t>(at), length, '\0');
  }
}

using Found = std::tuple<Finding::Kind, std::uint64_t, std::uint64_t, unsigned,
                         std::string, std::uint64_t>;

std::vector<Found> found_in(const Findings& findings) {
  std::vector<Found> found;
  for (const Finding& finding : findings.findings) {
    found.emplace_back(finding.kind, finding.begin, finding.end, finding.bit,
                       finding.error.reason, *finding.error.record);
  }
  return found;
}

// Examines the pieces in reverse order.
Findings examine(const std::string& path, std::uint64_t piece_bytes) {
  ScanProgress progress;
  Examination examination(path, piece_bytes);
  for (std::size_t i = examination.n_pieces(); i > 0; --i) {
    examination.examine(i - 1, &progress);
  }
  return examination.finish(&progress);
}

TEST(Examination, APieceHasBytes) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.write("data", frame_of("a"));
  EXPECT_THROW(Examination(path, 0), std::invalid_argument);
}

TEST(Examination, TheResultDoesNotDependOnThePieces) {
  const testing::TemporaryDirectory directory;
  std::mt19937 random(20261122);
  for (int round = 0; round < 400; ++round) {
    std::string file = random_file(&random);
    for (unsigned n = random() % 4; n > 0 && !file.empty(); --n) damage(&file, &random);
    const std::string path = directory.write("data", file);
    const Findings whole = examine(path, Examination::kPieceBytes);

    // By a sequential walk.
    const FileView view(path, Io::kPread);
    FrameWalk frames(Recovery::kRepair);
    frames.start(view);
    std::uint64_t n_records = 0;
    std::vector<std::uint64_t> damaged;
    for (Frame frame; frames.next(&frame);) {
      const Bytes bytes = as_bytes(file).subspan(frame.payload(), frame.length);
      const auto stored =
          load_le<std::uint32_t>(as_bytes(file).data() + frame.end() - kFooterBytes);
      if (stored == crc32c_mask(crc32c(bytes))) {
        ++n_records;
      } else {
        damaged.push_back(frame.offset);
      }
    }
    for (const SkippedSpan& gap : frames.take_gaps()) damaged.push_back(gap.begin);
    for (const auto& repaired : frames.take_repaired()) {
      damaged.push_back(repaired.frame.offset);
    }
    std::sort(damaged.begin(), damaged.end());
    EXPECT_EQ(whole.n_records, n_records);
    std::vector<std::uint64_t> begins;
    for (const Finding& finding : whole.findings) begins.push_back(finding.begin);
    EXPECT_EQ(begins, damaged);

    for (const std::uint64_t piece_bytes : {1u, 7u, 16u, 50u, 333u}) {
      const Findings found = examine(path, piece_bytes);
      EXPECT_EQ(found.n_records, whole.n_records);
      EXPECT_EQ(found_in(found), found_in(whole));
    }
  }
}

TEST(Examination, CanBeCancelled) {
  const testing::TemporaryDirectory directory;
  ScanProgress progress;
  progress.cancelled = true;
  Examination examination(directory.write("data", file_of({"first", "second"})));
  EXPECT_THROW(examination.examine(0, &progress), ScanCancelled);
}

TEST(Examination, ReportsItsProgress) {
  const testing::TemporaryDirectory directory;
  const std::string file = file_of(std::vector<std::string>(100, "some record"));
  ScanProgress progress;
  Examination examination(directory.write("data", file), 100);
  for (std::size_t i = 0; i < examination.n_pieces(); ++i) {
    examination.examine(i, &progress);
  }
  EXPECT_EQ(progress.n_bytes, file.size());
  EXPECT_EQ(examination.finish(&progress).n_records, 100u);
}

TEST(StreamExamination, TheResultDoesNotDependOnTheChunks) {
  std::string file = file_of({"first", "", "second", "third"});
  file[file_of({"first", ""}).size() + kHeaderBytes + 1] ^= 4;
  auto table = std::make_shared<FileTable>(std::vector<std::string>{"name"},
                                           std::vector<Io>{Io::kAuto});
  for (std::size_t n = 1; n <= file.size(); ++n) {
    auto streams = std::make_shared<ByteStreams>(1, 1, 1 << 20);
    (void)streams->begin();
    for (std::size_t at = 0; at < file.size(); at += n) {
      (void)streams->push(0, as_bytes(file).subspan(at, std::min(n, file.size() - at)));
    }
    streams->end(0);
    FrameStream stream(streams, table, {0}, {}, Recovery::kSkip);
    const Findings findings = examine(&stream, "name");
    EXPECT_EQ(stream.n_bytes(), file.size());
    EXPECT_EQ(findings.n_records, 3u);
    ASSERT_EQ(findings.findings.size(), 1u);
    EXPECT_EQ(findings.findings[0].begin, file_of({"first", ""}).size());
    EXPECT_EQ(findings.findings[0].end, file_of({"first", "", "second"}).size());
    EXPECT_EQ(findings.findings[0].error.record, 2u);
    EXPECT_EQ(findings.findings[0].error.code, Errc::kPayloadCrc);
  }
}

}  // namespace
}  // namespace fastrec
