// Tests of FileView and FileTable.
//
// Goal: open() never returns an unexpected version of a file, the number of open files
// is limited, and hints have no visible effect. Method: expect the right and a wrong
// identity; open one file more than the limit; pass hints for bytes inside, outside and
// truncated from the file.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"
#include "records.h"

namespace fastrec {
namespace {

constexpr std::size_t kMaxDescriptors = 48;  // FileTable::kMaxDescriptors

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

TEST_P(FileTableTest, AnExpectationAppliesToOpenFiles) {
  const auto files = table_of(1);
  const auto view = files->open(0);
  FileIdentity other = view->identity();
  ++other.mtime_ns;
  for (int again = 0; again < 2; ++again) {
    files->expect({other});
    EXPECT_THROW((void)files->open(0), Error);
    EXPECT_THROW((void)files->open(0), Error);
    files->expect({view->identity()});
    EXPECT_EQ(files->open(0)->identity(), view->identity());
  }
  Buffer buffer;  // the old view stays usable
  EXPECT_EQ(as_text(view->copy(0, 100, &buffer)), "content");
}

TEST_P(FileTableTest, AFulfilledExpectationKeepsTheFileOpen) {
  const auto files = table_of(1);
  const auto view = files->open(0);
  files->expect({view->identity()});
  EXPECT_EQ(files->open(0), view);
}

INSTANTIATE_TEST_SUITE_P(Io, FileTableTest,
                         ::testing::Values(Io::kAuto, Io::kMmap, Io::kPread));

using FileTableLimitTest = FileTableTest;

TEST_P(FileTableLimitTest, TheOldestFileIsClosedFirst) {
  const auto files = table_of(kMaxDescriptors + 1);
  std::vector<std::weak_ptr<const FileView>> views;
  for (std::size_t i = 0; i < kMaxDescriptors; ++i) views.push_back(files->open(i));
  for (const auto& view : views) EXPECT_FALSE(view.expired());
  (void)files->open(kMaxDescriptors);
  EXPECT_TRUE(views[0].expired());
  for (std::size_t i = 1; i < kMaxDescriptors; ++i) EXPECT_FALSE(views[i].expired());
  EXPECT_EQ(files->open(1), views[1].lock());
}

TEST_P(FileTableLimitTest, ADroppedFileIsNotCounted) {
  const auto files = table_of(kMaxDescriptors);
  (void)files->open(0);
  files->expect(std::vector<FileIdentity>(kMaxDescriptors));
  files->expect({});
  const std::weak_ptr<const FileView> view = files->open(0);
  for (std::size_t i = 1; i < kMaxDescriptors; ++i) (void)files->open(i);
  EXPECT_FALSE(view.expired());
}

INSTANTIATE_TEST_SUITE_P(Pread, FileTableLimitTest, ::testing::Values(Io::kPread));

using FileViewTest = FileTableTest;

TEST_P(FileViewTest, HintsForAnyBytesAreNeverErrors) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const testing::TemporaryDirectory directory;
  const std::string content(5'000'003, 'x');
  for (const std::uint64_t size :
       {std::uint64_t{0}, std::uint64_t{1}, content.size()}) {
    const std::string path = directory.write("file", content.substr(0, size));
    const FileView view(path, GetParam());
    for (const std::uint64_t cut : {size, size / 2}) {
      std::filesystem::resize_file(path, cut);
      for (const std::uint64_t offset :
           {std::uint64_t{0}, std::uint64_t{4097}, size - 1, size, size + 1, kMax}) {
        for (const std::uint64_t length :
             {std::uint64_t{0}, std::uint64_t{1}, size, kMax - offset, kMax}) {
          view.will_need(offset, length);
          view.read_ahead(offset, length);
          view.prefetch(offset, std::min<std::uint64_t>(length, 1024));
        }
      }
    }
  }
}

TEST_P(FileViewTest, HintsDoNotChangeTheBytes) {
  const testing::TemporaryDirectory directory;
  std::string content;
  for (std::uint32_t i = 0; i < 600'000; ++i) testing::append_le(&content, i);
  const FileView view(directory.write("file", content), GetParam());
  view.will_need(0, content.size());
  Buffer buffer;
  EXPECT_EQ(as_text(view.copy(0, content.size(), &buffer)), content);
}

INSTANTIATE_TEST_SUITE_P(Io, FileViewTest,
                         ::testing::Values(Io::kAuto, Io::kMmap, Io::kPread));

}  // namespace
}  // namespace fastrec
