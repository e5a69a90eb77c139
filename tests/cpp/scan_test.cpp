// Scans in segments, against the plain walk.
//
// Goal: however a file is cut into segments, and whatever its payloads pretend to be, a
// scan finds the frames that a walk from byte 0 finds, and the same fault. Method:
// random files whose payloads hold frames, zeros and noise; the oracle is a loop of
// eight lines.

#include "record/scan.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "record/framing.h"
#include "record/index.h"
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
    case 1:  // a TFRecord file within the record, cut somewhere
      return testing::file_of({noise(random, size), "", noise(random, 5)})
          .substr(0, 40 + size);
    case 2:  // a header that promises a long record
      return testing::header_of(size * 3) + noise(random, size);
    default:
      return noise(random, size);
  }
}

TEST(Scan, AnyCutFindsWhatThePlainWalkFinds) {
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
            scan_mapped(as_bytes(file), n_threads, shape, &progress);
        ASSERT_EQ(found.offsets, expected.offsets) << round << " " << segment_bytes;
        ASSERT_EQ(found.fault.code, expected.fault.code);
        ASSERT_EQ(found.fault.offset, expected.fault ? expected.fault.offset : 0);
      }
    }
  }
}

TEST(Scan, MappedAndReadFilesGiveTheSame) {
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

TEST(Index, SurvivesTheFileAndNothingElse) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.write("data", testing::file_of({"a", "", "ccc"}));
  ScanProgress progress;
  const FileView view(path, Io::kMmap);
  const Index built = Index::build(view, 1, &progress);
  built.save(directory.file("index"));

  const auto loaded = Index::load(directory.file("index"), view.identity());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->size(), 3u);
  EXPECT_TRUE(std::equal(loaded->offsets().begin(), loaded->offsets().end(),
                         built.offsets().begin(), built.offsets().end()));

  FileIdentity other = view.identity();
  ++other.mtime_ns;
  EXPECT_FALSE(Index::load(directory.file("index"), other));
  EXPECT_FALSE(Index::load(directory.file("absent"), view.identity()));
}

TEST(Index, IsNotLoadedWithAnyBitFlippedOrByteMissing) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.write("data", testing::file_of({"a", "", "ccc"}));
  ScanProgress progress;
  const FileView view(path, Io::kMmap);
  Index::build(view, 1, &progress).save(directory.file("index"));
  std::ifstream in(directory.file("index"), std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});

  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    const std::string bad_path = directory.write("bad", bad);
    EXPECT_FALSE(Index::load(bad_path, view.identity())) << "bit " << bit;
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    const std::string bad_path = directory.write("bad", good.substr(0, size));
    EXPECT_FALSE(Index::load(bad_path, view.identity())) << "size " << size;
  }
}

}  // namespace
}  // namespace fastrec
