// Tests of RowFile.
//
// Goal: copies have the bytes of their rows, and a checksum that another row, another
// number or a changed byte does not have; a row that is not inside of the file is absent
// and writes nothing. Method: a file of known bytes, and checksums computed in memory.

#include "file/row_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "records.h"

namespace fastrec {
namespace {

class RowFileTest : public ::testing::Test {
 protected:
  RowFileTest() {
    content_ = "head:";
    for (int i = 0; i < 1000; ++i) content_ += static_cast<char>(i * 37 % 251);
    path_ = directory_.write("rows", content_);
  }

  // The checksum of a row that is [begin, end) of the file.
  std::uint32_t expected(std::int64_t number, std::int64_t begin, std::int64_t end) {
    std::uint32_t checksum;
    const std::int64_t bounds[] = {begin, end};
    sum_rows(as_bytes(content_), {&number, 1}, bounds, &checksum);
    return checksum;
  }

  testing::TemporaryDirectory directory_;
  std::string content_, path_;
};

TEST_F(RowFileTest, CopiesRowsOneAfterAnother) {
  const RowFile file(path_);
  const std::vector<std::int64_t> numbers = {7, 0, 3};
  const std::vector<std::int64_t> bounds = {10, 30, 500, 500, 0, 1005};
  std::vector<std::uint8_t> target(1025);
  std::vector<std::uint32_t> checksums(3);
  copy_rows(file, numbers, bounds, target, checksums.data());
  EXPECT_EQ(as_text(target), content_.substr(10, 20) + content_);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(checksums[i], expected(numbers[i], bounds[2 * i], bounds[2 * i + 1]));
  }
}

TEST_F(RowFileTest, ARowOutsideOfTheFileOrOfTheRoomIsAbsent) {
  const RowFile file(path_);
  const std::vector<std::int64_t> bad = {-1, 4, 1000, 1006, 9, 8, 2000, 2001, 0, 9};
  std::vector<std::uint8_t> target(8, 1);
  std::vector<std::uint32_t> checksums(5, 1);
  copy_rows(file, std::vector<std::int64_t>(5, 0), bad, target, checksums.data());
  EXPECT_EQ(checksums, std::vector<std::uint32_t>(5, kAbsentRow));
  EXPECT_EQ(target, std::vector<std::uint8_t>(8, 1));
}

TEST_F(RowFileTest, TheChecksumDependsOnTheNumberAndEveryByte) {
  std::set<std::uint32_t> checksums = {kAbsentRow};
  for (std::int64_t number = 0; number < 100; ++number) {
    checksums.insert(expected(number, 10, 20));
  }
  for (std::size_t i = 10; i < 20; ++i) {
    content_[i] ^= 1;
    checksums.insert(expected(0, 10, 20));
    content_[i] ^= 1;
  }
  EXPECT_EQ(checksums.size(), 111u);
}

TEST_F(RowFileTest, AFileThatWasShortenedIsAnError) {
  const std::string path = directory_.write("long", std::string(1 << 20, 'x'));
  const RowFile file(path);
  std::filesystem::resize_file(path, 1);
  std::vector<std::uint8_t> target(100);
  const std::int64_t number = 0, bounds[] = {500'000, 500'100};
  std::uint32_t checksum;
  EXPECT_THROW(copy_rows(file, {&number, 1}, bounds, target, &checksum), Error);
}

}  // namespace
}  // namespace fastrec
