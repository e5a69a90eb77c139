// Tests of RecordReader.
//
// Goal: every place returns its own bytes, for any places before and after it, also
// invalid ones. Method: files with records of all sizes, read in file order, backwards,
// at random and with repetitions; invalid indexes; files truncated after opening.

#include "record/reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "places.h"
#include "records.h"

namespace fastrec {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

using Numbers = std::vector<std::uint64_t>;

class ReaderTest : public ::testing::TestWithParam<Io> {
 protected:
  // `n_records` in each of `n_files`: most are small, some larger than a block.
  void write(std::size_t n_files, std::size_t n_records) {
    std::mt19937 random(1);
    std::vector<Index> indexes;
    for (std::size_t i = 0; i < n_files; ++i) {
      std::vector<std::string> payloads;
      for (std::size_t k = 0; k < n_records; ++k) {
        const std::size_t size = random() % 50 == 0 ? 700'000 : random() % 3000;
        payloads.emplace_back(size, static_cast<char>(random()));
      }
      payloads_.insert(payloads_.end(), payloads.begin(), payloads.end());
      paths_.push_back(directory_.write(std::to_string(i), testing::file_of(payloads)));
      ScanProgress progress;
      indexes.push_back(Index::build(FileView(paths_[i], GetParam()), 1, &progress));
    }
    catalog_ = std::make_unique<Catalog>(std::move(indexes));
    files_ = std::make_shared<FileTable>(paths_, std::vector<Io>{GetParam()});
    reader_ = std::make_unique<RecordReader>(files_);
  }

  std::vector<Place> places_of(const Numbers& records) const {
    FrameRuns frames;
    catalog_->locate(records, &frames);
    return testing::places_of(frames);
  }

  void start(const std::vector<Place>& places, const std::uint8_t* bytes = nullptr) {
    frames_ = testing::frames_of(places);
    reader_->start(frames_, bytes);
  }

  // Reads `places`, which start with the places of `records`.
  void check(const std::vector<Place>& places, const Numbers& records) {
    start(places);
    for (const std::uint64_t record : records) {
      Bytes payload;
      ASSERT_FALSE(reader_->next(&payload)) << "record " << record;
      ASSERT_EQ(as_text(payload), payloads_[record]) << "record " << record;
    }
  }

  void check(const Numbers& records) { check(places_of(records), records); }

  Numbers all() const {
    Numbers records(payloads_.size());
    std::iota(records.begin(), records.end(), 0);
    return records;
  }

  testing::TemporaryDirectory directory_;
  std::vector<std::string> payloads_;
  std::vector<std::string> paths_;
  std::unique_ptr<Catalog> catalog_;
  std::shared_ptr<FileTable> files_;
  std::unique_ptr<RecordReader> reader_;
  FrameRuns frames_;  // that it reads
};

TEST_P(ReaderTest, PlacesInAnyOrder) {
  write(3, 100);
  Numbers records = all();
  check(records);
  std::reverse(records.begin(), records.end());
  check(records);
  std::mt19937 random(2);
  for (int again = 0; again < 5; ++again) {
    std::shuffle(records.begin(), records.end(), random);
    check(records);
  }
  check({7, 7, 8, 9, 7, 299, 0, 0});
  check({5});
  check({});
}

TEST_P(ReaderTest, RunsOfAdjacentRecordsInAnyOrder) {
  write(3, 100);
  Numbers records;
  for (const std::uint64_t first : {250u, 90u, 0u, 130u, 190u}) {
    for (std::uint64_t record = first; record < first + 20; ++record) {
      records.push_back(record);
    }
  }
  check(records);
}

TEST_P(ReaderTest, MoreFilesThanAReaderCaches) {
  write(600, 1);
  Numbers records = all();
  for (int again = 0; again < 2; ++again) {
    std::shuffle(records.begin(), records.end(), std::mt19937(3));
    check(records);
    check({0, 256, 0, 512, 256, 0});  // one slot
  }
}

TEST_P(ReaderTest, FramesAreCopiedToTheirBegins) {
  write(1, 4);
  const std::vector<Place> places = places_of({2, 0});
  const std::size_t sizes[] = {places[0].frame.size(), places[1].frame.size()};
  std::vector<std::uint8_t> into(sizes[0] + sizes[1] + 1);
  const FrameRuns frames = testing::frames_of(places);
  const std::int64_t begins[] = {static_cast<std::int64_t>(sizes[1]) + 1, 1};
  copy_frames(files_, frames, begins, into);
  EXPECT_EQ(into[0], 0);
  EXPECT_EQ(as_text(Bytes(into).subspan(1 + kHeaderBytes, payloads_[0].size())),
            payloads_[0]);
  EXPECT_EQ(
      as_text(Bytes(into).last(sizes[0]).subspan(kHeaderBytes, payloads_[2].size())),
      payloads_[2]);
  for (const std::int64_t begin : {begins[0] + 1, std::int64_t{-1}}) {
    const std::int64_t outside[] = {begin, 1};
    EXPECT_THROW(copy_frames(files_, frames, outside, into), std::out_of_range);
  }
  EXPECT_THROW(copy_frames(files_, frames, {}, into), std::invalid_argument);
}

TEST_P(ReaderTest, InvalidPlacesAreFaultsAndDoNotAffectTheirNeighbours) {
  write(2, 100);
  const std::uint64_t size = files_->open(0)->size();
  const Frame impossible[] = {
      {0, kMax},    {size, 0},        {size - 1, 100},   {size + 1, 100},     {kMax, 0},
      {kMax, kMax}, {kMax - 20, 100}, {size - 16, kMax}, {4097, kMax - 4096},
  };
  Numbers records = all();
  std::shuffle(records.begin(), records.end(), std::mt19937(4));
  for (const Frame& frame : impossible) {
    std::vector<Place> places = places_of(records);
    places.insert(places.begin() + 50, {0, 0, frame});
    check(places, Numbers(records.begin(), records.begin() + 50));
    Bytes payload;
    EXPECT_TRUE(reader_->next(&payload)) << frame.offset << " " << frame.length;
    // At the start of a batch, and between adjacent records.
    places = {{0, 0, frame}, {0, 0, frame}, {1, 0, {0, payloads_[100].size()}}};
    start(places);
    EXPECT_TRUE(reader_->next(&payload)) << frame.offset << " " << frame.length;
    check(records);
  }
}

TEST_P(ReaderTest, DamagedFramesAreFaultsAndTheirNeighboursAreRead) {
  write(1, 300);
  const std::vector<Place> places = places_of(all());
  struct Change {
    std::uint64_t record;
    std::uint64_t at;  // in the frame
    Errc code;
    std::uint64_t offset;  // of the fault, in the frame
  };
  // Separately, and several in one block.
  const Change changes[] = {
      {10, 0, Errc::kLengthCrc, 0},
      {11, 9, Errc::kLengthCrc, 0},
      {12, kHeaderBytes, Errc::kPayloadCrc, kHeaderBytes},
      {14, places[14].frame.size() - 1, Errc::kPayloadCrc, kHeaderBytes},
      {299, kHeaderBytes, Errc::kPayloadCrc, kHeaderBytes}};
  std::vector<std::uint8_t> file;
  {
    Buffer buffer;
    const Bytes content = files_->open(0)->copy(0, files_->open(0)->size(), &buffer);
    file.assign(content.begin(), content.end());
  }
  for (const Change& change : changes) {
    file[places[change.record].frame.offset + change.at] ^= 0x20;
  }
  directory_.write("0", as_text(file));
  files_ = std::make_shared<FileTable>(paths_, std::vector<Io>{GetParam()});
  reader_ = std::make_unique<RecordReader>(files_);

  const std::vector<std::uint8_t> padded = [&] {
    std::vector<std::uint8_t> bytes(Buffer::kSlackBytes, 0);
    bytes.insert(bytes.end(), file.begin(), file.end());
    bytes.insert(bytes.end(), Buffer::kSlackBytes, 0);
    return bytes;
  }();
  const auto check_all = [&](const Numbers& records, const std::uint8_t* frames) {
    start(places_of(records), frames);
    for (const std::uint64_t record : records) {
      Bytes payload;
      const Fault fault = reader_->next(&payload);
      const Change* change = std::ranges::find(changes, record, &Change::record);
      if (change != std::end(changes)) {
        EXPECT_EQ(fault.code, change->code) << record;
        EXPECT_EQ(fault.offset, places[record].frame.offset + change->offset) << record;
      } else {
        ASSERT_FALSE(fault) << record;
        ASSERT_EQ(as_text(payload), payloads_[record]) << record;
      }
    }
  };
  Numbers records = all();
  check_all(records, nullptr);
  check_all(records, padded.data() + Buffer::kSlackBytes);  // frames read before
  std::shuffle(records.begin(), records.end(), std::mt19937(6));
  check_all(records, nullptr);
}

TEST_P(ReaderTest, AMissingFileIsAnErrorAtItsPlace) {
  write(3, 20);
  std::filesystem::remove(paths_[2]);
  std::vector<Place> places = places_of({0, 30, 5, 59, 1});
  check(places, {0, 30, 5});
  Bytes payload;
  EXPECT_THROW((void)reader_->next(&payload), IoError);
}

INSTANTIATE_TEST_SUITE_P(Ways, ReaderTest,
                         ::testing::Values(Io::kAuto, Io::kMmap, Io::kPread));

using ShortenedFileTest = ReaderTest;

TEST_P(ShortenedFileTest, TruncatedPlacesAreFaultsAndTheOthersAreRead) {
  write(1, 200);
  check({0});
  const std::vector<Place> last = places_of({199});
  std::filesystem::resize_file(paths_[0], last[0].frame.offset + 3);
  const std::vector<Place> places = places_of({3, 150, 1, 199, 198});
  check(places, {3, 150, 1});
  Bytes payload;
  EXPECT_EQ(reader_->next(&payload).code, Errc::kTruncatedHeader);
  check({198, 0, 150});
}

INSTANTIATE_TEST_SUITE_P(Pread, ShortenedFileTest, ::testing::Values(Io::kPread));

using CatalogTest = ReaderTest;

TEST_P(CatalogTest, LocatesManyRecordsAsItLocatesOne) {
  write(5, 40);
  Numbers records = all();
  std::shuffle(records.begin(), records.end(), std::mt19937(5));
  records.push_back(records.front());
  FrameRuns frames;
  catalog_->locate(Numbers{17}, &frames);  // keeps its place
  catalog_->locate(records, &frames);
  const std::vector<Place> places = testing::places_of(frames);
  records.insert(records.begin(), 17);
  ASSERT_EQ(places.size(), records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Place expected = catalog_->locate(records[i]);
    EXPECT_EQ(places[i].file, expected.file);
    EXPECT_EQ(places[i].record, expected.record);
    EXPECT_EQ(places[i].frame.offset, expected.frame.offset);
    EXPECT_EQ(places[i].frame.length, expected.frame.length);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, CatalogTest, ::testing::Values(Io::kAuto));

}  // namespace
}  // namespace fastrec
