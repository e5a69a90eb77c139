// The table of open files.
//
// Goal: a file that is not the expected one is never handed out, however often it was
// opened before, and no more files stay open than may be. Method: expect what is there
// and what is not, and open one file more than the table keeps.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"
#include "records.h"

namespace fastrec {
namespace {

constexpr std::size_t kMostDescriptors = 48;  // FileTable keeps as many for pread

class FileTableTest : public ::testing::TestWithParam<Io> {
 protected:
  std::shared_ptr<FileTable> table_of(std::size_t n_files) {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < n_files; ++i) {
      paths.push_back(directory_.write(std::to_string(i), "content"));
    }
    return std::make_shared<FileTable>(std::move(paths), std::vector<Io>{GetParam()});
  }

 private:
  testing::TemporaryDirectory directory_;
};

TEST_P(FileTableTest, AnExpectationHoldsForFilesThatAreOpenAlready) {
  const auto files = table_of(1);
  const auto view = files->open(0);
  FileIdentity other = view->identity();
  ++other.mtime_ns;
  for (int again = 0; again < 2; ++again) {
    files->expect(0, other);
    EXPECT_THROW((void)files->open(0), Error);
    EXPECT_THROW((void)files->open(0), Error);
    files->expect(0, view->identity());
    EXPECT_EQ(files->open(0)->identity(), view->identity());
  }
  Buffer buffer;  // who had the file open may go on reading
  EXPECT_EQ(as_text(view->copy(0, 100, &buffer)), "content");
}

TEST_P(FileTableTest, AnExpectationThatIsMetKeepsTheFileOpen) {
  const auto files = table_of(1);
  const auto view = files->open(0);
  files->expect(0, view->identity());
  EXPECT_EQ(files->open(0), view);
}

INSTANTIATE_TEST_SUITE_P(Ways, FileTableTest,
                         ::testing::Values(Io::kAuto, Io::kMmap, Io::kPread));

using FileTableLimitTest = FileTableTest;

TEST_P(FileTableLimitTest, TheFileThatWasOpenedFirstIsClosedFirst) {
  const auto files = table_of(kMostDescriptors + 1);
  std::vector<std::weak_ptr<const FileView>> views;
  for (std::size_t i = 0; i < kMostDescriptors; ++i) views.push_back(files->open(i));
  for (const auto& view : views) EXPECT_FALSE(view.expired());
  (void)files->open(kMostDescriptors);
  EXPECT_TRUE(views[0].expired());
  for (std::size_t i = 1; i < kMostDescriptors; ++i) EXPECT_FALSE(views[i].expired());
  EXPECT_EQ(files->open(1), views[1].lock());
}

TEST_P(FileTableLimitTest, AFileThatWasDroppedIsNotCounted) {
  const auto files = table_of(kMostDescriptors);
  const FileIdentity identity = files->open(0)->identity();
  files->expect(0, {});
  files->expect(0, identity);
  const std::weak_ptr<const FileView> view = files->open(0);
  for (std::size_t i = 1; i < kMostDescriptors; ++i) (void)files->open(i);
  EXPECT_FALSE(view.expired());
}

INSTANTIATE_TEST_SUITE_P(Pread, FileTableLimitTest, ::testing::Values(Io::kPread));

}  // namespace
}  // namespace fastrec
