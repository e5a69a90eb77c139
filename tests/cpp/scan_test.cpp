// Tests of scans in segments.
//
// Goal: for any division into segments and any payloads, a scan returns the frames and
// the fault of a sequential walk. Method: random files whose payloads contain frames,
// zeros and noise; the oracle is a loop of eight lines.

#include "record/scan.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "places.h"
#include "record/framing.h"
#include "record/index.h"
#include "record/reader.h"
#include "records.h"

namespace fastrec {
namespace {

ScanResult walk(Bytes file) {
  ScanResult result;
  while (result.offsets.back() < file.size()) {
    const std::uint64_t at = result.offsets.back();
    std::uint64_t length;
    result.fault = check_header(file.data() + at, file.size() - at, &length);
    result.fault.offset += at;
    if (result.fault) break;
    result.offsets.push_back(at + length + kFrameBytes);
  }
  return result;
}

std::string noise(std::mt19937* random, std::size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  return bytes;
}

std::string random_payload(std::mt19937* random) {
  const std::size_t size = (*random)() % 200;
  switch ((*random)() % 4) {
    case 0:
      return std::string(size, '\0');
    case 1:  // a truncated TFRecord file within the record
      return testing::file_of({noise(random, size), "", noise(random, 5)})
          .substr(0, 40 + size);
    case 2:  // a header of a long record
      return testing::header_of(size * 3) + noise(random, size);
    default:
      return noise(random, size);
  }
}

TEST(Scan, AnySegmentsMatchTheSequentialWalk) {
  std::mt19937 random(20261121);
  for (int round = 0; round < 400; ++round) {
    std::string file;
    const std::size_t n_records = random() % 60;
    for (std::size_t i = 0; i < n_records; ++i) {
      file += testing::frame_of(random_payload(&random));
    }
    if (round % 4 == 1 && !file.empty()) file[random() % file.size()] ^= 0x10;
    if (round % 4 == 2) file.resize(file.size() - random() % (file.size() + 1));
    const ScanResult expected = walk(as_bytes(file));
    for (const unsigned n_threads : {1u, 3u}) {
      for (const std::uint64_t segment_bytes : {1u, 17u, 100u, 1000u}) {
        const ScanShape shape{segment_bytes, 8};
        ScanProgress progress;
        const ScanResult found =
            scan_mapped(as_bytes(file), {0, file.size()}, n_threads, shape, &progress);
        ASSERT_EQ(found.offsets, expected.offsets) << round << " " << segment_bytes;
        ASSERT_EQ(found.fault.code, expected.fault.code);
        ASSERT_EQ(found.fault.offset, expected.fault ? expected.fault.offset : 0);
      }
    }
  }
}

TEST(Scan, WindowsMatchTheSequentialWalk) {
  std::mt19937 random(20261122);
  for (int round = 0; round < 300; ++round) {
    std::string file;
    const std::size_t n_records = random() % 60;
    for (std::size_t i = 0; i < n_records; ++i) {
      file += testing::frame_of(random_payload(&random));
    }
    if (round % 4 == 1 && !file.empty()) file[random() % file.size()] ^= 0x10;
    if (round % 4 == 2) file.resize(file.size() - random() % (file.size() + 1));
    const ScanResult expected = walk(as_bytes(file));
    ScanProgress progress;
    ScanResult found;
    while (found.offsets.back() < file.size() && !found.fault) {
      const std::uint64_t begin = found.offsets.back();
      const std::uint64_t end = std::min(begin + 1 + random() % 700, file.size());
      const ScanResult window = scan_mapped(as_bytes(file), {begin, end}, 1,
                                            {1 + random() % 200, 5}, &progress);
      EXPECT_EQ(window.offsets.front(), begin);
      EXPECT_TRUE(window.fault || window.offsets.back() >= end);
      found.offsets.insert(found.offsets.end(), window.offsets.begin() + 1,
                           window.offsets.end());
      found.fault = window.fault;
    }
    ASSERT_EQ(found.offsets, expected.offsets) << round;
    ASSERT_EQ(found.fault.code, expected.fault.code);
    ASSERT_EQ(found.fault.offset, expected.fault ? expected.fault.offset : 0);
  }
}

TEST(Scan, APayloadOfZeros) {
  // Every byte looks like the length of an empty record.
  std::string file = testing::frame_of("first");
  file += testing::frame_of(std::string(std::size_t{8} << 20, '\0'));
  for (int i = 0; i < 50'000; ++i) file += testing::frame_of("a record like others");
  for (const unsigned n_threads : {1u, 3u}) {
    ScanProgress progress;
    const ScanResult found =
        scan_mapped(as_bytes(file), {0, file.size()}, n_threads, {}, &progress);
    EXPECT_FALSE(found.fault);
    EXPECT_EQ(found.offsets, walk(as_bytes(file)).offsets);

    ScanProgress cancelled;
    cancelled.cancelled = true;
    const std::vector<std::uint64_t> offsets =
        scan_mapped(as_bytes(file), {0, file.size()}, n_threads, {}, &cancelled)
            .offsets;
    EXPECT_EQ(cancelled.n_bytes, 0u);
    ASSERT_FALSE(offsets.empty());
    EXPECT_EQ(offsets.front(), 0u);
  }
}

TEST(Scan, MappedAndReadFilesMatch) {
  const testing::TemporaryDirectory directory;
  std::mt19937 random(7);
  std::string file;
  for (int i = 0; i < 3000; ++i) {
    file += testing::frame_of(noise(&random, random() % 1000));
  }
  file += testing::frame_of(noise(&random, 3'000'000)) + testing::frame_of("last");
  const std::string path = directory.write("data", file);
  ScanProgress progress;
  const ScanResult mapped = scan(FileView(path, Io::kMmap), 2, &progress);
  const ScanResult read = scan(FileView(path, Io::kPread), 2, &progress);
  EXPECT_EQ(mapped.offsets.size(), 3003u);
  EXPECT_EQ(mapped.offsets, read.offsets);
  EXPECT_EQ(mapped.offsets, walk(as_bytes(file)).offsets);
}

TEST(Scan, LargeRecordsAreFoundByTheirHeaders) {
  const testing::TemporaryDirectory directory;
  std::mt19937 random(8);
  std::string file;
  for (int i = 0; i < 120; ++i) {
    std::string payload = noise(&random, 70'000 + random() % 200'000);
    // A TFRecord file within the record, at a place where a segment may begin.
    for (int j = 0; j < 400; ++j) payload += testing::frame_of("nested");
    file += testing::frame_of(payload);
  }
  for (const bool is_damaged : {false, true}) {
    if (is_damaged) file[file.size() / 2] ^= 1, file.resize(file.size() - 50'000);
    const std::string path = directory.write("data", file);
    const ScanResult expected = walk(as_bytes(file));
    ScanProgress progress;
    const ScanResult found = scan(FileView(path, Io::kPread), 2, &progress);
    EXPECT_EQ(found.offsets, expected.offsets);
    EXPECT_EQ(found.fault.code, expected.fault.code);
    EXPECT_EQ(found.fault.offset, expected.fault ? expected.fault.offset : 0);
  }
}

TEST(RecordReader, AnIndexEntryPastTheEndOfTheFileIsAFault) {
  const testing::TemporaryDirectory directory;
  const std::string content = testing::file_of({"a", "bb"});
  const auto files = std::make_shared<FileTable>(
      std::vector<std::string>{directory.write("data", content)},
      std::vector<Io>{Io::kAuto});
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  for (const Frame bad : {Frame{17, 3}, Frame{35, 0}, Frame{17, most}, Frame{most, 0},
                          Frame{most, most}}) {
    const Place places[] = {{0, 0, {0, 1}}, {0, 1, bad}};
    const FrameRuns frames = testing::frames_of(places);
    RecordReader reader(files);
    reader.start(frames);
    Bytes payload;
    EXPECT_FALSE(reader.next(&payload));
    const Fault fault = reader.next(&payload);
    EXPECT_EQ(fault.code, Errc::kIndexPastEnd);
    EXPECT_EQ(fault.offset, bad.offset);
    EXPECT_EQ(
        describe(fault),
        "the index does not match the file: an entry is past the end of the file (35 "
        "bytes)");
  }
}

}  // namespace
}  // namespace fastrec
