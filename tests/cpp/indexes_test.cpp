// Tests of Indexes, of what an IndexFile finds for many files, and of paths.
//
// Goal: each file gets its own index, and no index of another version, content or file.
// Of several errors, the first one in the order of the files is reported. Method: small
// files and made-up indexes that differ in one property at a time.

#include "record/indexes.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "record/index_file.h"
#include "record/paths.h"
#include "records.h"

namespace fastrec {
namespace {

using Numbers = std::vector<std::int64_t>;
using Strings = std::vector<std::string>;

Index index_of(std::vector<std::uint64_t> offsets, std::int64_t mtime_ns = 0) {
  return Index::from_offsets(offsets, {offsets.back(), mtime_ns}, "made up");
}

std::vector<std::uint64_t> sizes(const std::vector<Index>& indexes) {
  std::vector<std::uint64_t> sizes;
  for (const Index& index : indexes) sizes.push_back(index.size());
  return sizes;
}

TEST(Indexes, AreMergedByTheNumbersOfTheirFiles) {
  const Indexes one({index_of({0, 16}), index_of({0})}), two({index_of({0, 16, 32})});
  const Numbers of_one{2, 0}, of_two{1}, outside{3}, negative{-1};
  const PartialIndexes all[] = {{of_one, &one}, {of_two, &two}};
  EXPECT_EQ(sizes(merged(3, all)), (std::vector<std::uint64_t>{0, 2, 1}));
  EXPECT_THROW(merged(4, all), std::invalid_argument) << "file 3 has no index";
  const PartialIndexes uneven[] = {{of_two, &one}};
  EXPECT_THROW(merged(2, uneven), std::invalid_argument);
  for (const Numbers& numbers : {outside, negative}) {
    const PartialIndexes absent[] = {{of_one, &one}, {numbers, &two}};
    EXPECT_THROW(merged(3, absent), std::out_of_range);
  }
}

TEST(Indexes, AreJoinedInOrder) {
  const auto one =
      std::make_shared<Indexes>(std::vector<Index>{index_of({0, 16}), index_of({0})});
  const std::shared_ptr<Indexes> parts[] = {one, one};
  EXPECT_EQ(sizes(joined(parts)), (std::vector<std::uint64_t>{1, 0, 1, 0}));
  EXPECT_TRUE(joined({}).empty());
}

TEST(Indexes, AreBuiltByTheNumbersOfTheirFiles) {
  const testing::TemporaryDirectory directory;
  const Strings paths = {directory.write("a", testing::file_of({"x", "yz"})),
                         directory.write("b", testing::file_of({})),
                         directory.write("c", testing::file_of({"v"}))};
  ScanProgress progress;
  const FileTable table(paths, {Io::kPread});
  EXPECT_EQ(sizes(build_indexes(table, Numbers{2, 1, 0}, 1, &progress)),
            (std::vector<std::uint64_t>{1, 0, 2}));
  EXPECT_THROW(build_indexes(table, Numbers{3}, 1, &progress), std::out_of_range);
  EXPECT_THROW(build_indexes(table, Numbers{-1}, 1, &progress), std::out_of_range);
}

TEST(Indexes, ReportTheNamesOfFilesAndCompressedOnes) {
  const testing::TemporaryDirectory directory;
  const Strings paths = {directory.write("a", "\x1f\x8b\x08" + std::string(40, 'x'))};
  const FileTable table(paths, {Io::kPread}, {"s3://b/a"}, kMaxPayloadBytes, nullptr,
                        true);
  ScanProgress progress;
  try {
    build_indexes(table, Numbers{0}, 1, &progress);
    FAIL() << "a compressed file has no index";
  } catch (const Error& error) {
    EXPECT_EQ(error.path, "s3://b/a");
  }
}

class IndexQueryTest : public ::testing::Test {
 protected:
  IndexQueryTest() {
    const std::vector<std::uint64_t> ends{0, 20, 36};
    const std::vector<std::uint32_t> crcs{1, 7};
    const Indexes indexes({index_of({0, 17, 33}, 5),
                           Index::of_stream(ends, crcs, {}, {99, 3}, Content::kGzip)});
    save_indexes(path_, Strings{"a", "b"}, indexes, {}, std::nullopt);
  }

  // The files among 0 ("a"), 1 ("b") and 2 ("absent") whose indexes are found.
  Numbers found(IndexQuery query = {}) {
    const Strings names{"a", "b", "absent"};
    query.names = names;
    query.versions = versions_;
    query.contents = contents_;
    return IndexFile::load(path_)->find(query, Numbers{0, 1, 2}).files;
  }

  testing::TemporaryDirectory directory_;
  std::string path_ = directory_.file("index");
  std::vector<FileIdentity> versions_{{33, 5}, {99, 3}, {1, 1}};
  std::vector<std::uint8_t> contents_{kAnyContent, kAnyContent, kAnyContent};
};

TEST_F(IndexQueryTest, FindsTheSameVersion) {
  EXPECT_EQ(found(), (Numbers{0, 1}));
  versions_[0].mtime_ns = 6;
  EXPECT_EQ(found(), (Numbers{1}));
  EXPECT_EQ(found({.ignores_times = true}), (Numbers{0, 1}));
  versions_[0] = {34, 5};
  EXPECT_EQ(found({.ignores_times = true}), (Numbers{1}));
}

TEST_F(IndexQueryTest, GivesAnIndexTheTimeOfItsFile) {
  const Strings names{"a"};
  versions_ = {{33, 8}};
  contents_ = {kAnyContent};
  const FoundIndexes found = IndexFile::load(path_)->find({.names = names,
                                                           .versions = versions_,
                                                           .contents = contents_,
                                                           .ignores_times = true},
                                                          Numbers{0});
  ASSERT_EQ(found.indexes.size(), 1u);
  EXPECT_EQ(found.indexes[0].identity(), (FileIdentity{33, 8}));
}

TEST_F(IndexQueryTest, FindsTheSameContentAndChecksums) {
  contents_ = {code_of(Content::kTfrecord), code_of(Content::kGzip), 0};
  EXPECT_EQ(found(), (Numbers{0, 1}));
  EXPECT_EQ(found({.needs_crcs = true}), (Numbers{1}));
  std::swap(contents_[0], contents_[1]);
  EXPECT_EQ(found(), Numbers{});
  const Strings names{"absent", "b", "a"};
  EXPECT_EQ(IndexFile::load(path_)->contents(names),
            (std::vector<std::uint8_t>{kAnyContent, 1, 0}));
}

TEST_F(IndexQueryTest, ProbesTheFrames) {
  const std::string payload(17, 'x');  // a frame of 33 bytes
  const std::string good = testing::frame_of("") + testing::frame_of("y");
  save_indexes(path_, Strings{"a"}, Indexes({index_of({0, 16, 33}, 5)}), {},
               std::nullopt);
  for (const std::string& content : {good, testing::frame_of(payload)}) {
    const std::string path = directory_.write("a", content);
    FileTable table({path, path, path}, {Io::kPread});
    EXPECT_EQ(found({.probed = &table}), content == good ? Numbers{0} : Numbers{});
  }
}

TEST_F(IndexQueryTest, RejectsNumbersAndPropertiesThatDoNotFit) {
  const auto file = IndexFile::load(path_);
  const Strings names{"a"};
  EXPECT_THROW(file->find({.names = names}, Numbers{0}), std::invalid_argument);
  versions_.resize(1);
  contents_.resize(1);
  const IndexQuery query{names, versions_, contents_};
  EXPECT_THROW(file->find(query, Numbers{1}), std::out_of_range);
  EXPECT_THROW(file->find(query, Numbers{-1}), std::out_of_range);
  EXPECT_THROW(content_of_code(3), std::invalid_argument);
}

TEST_F(IndexQueryTest, SavesNewIndexesAndKeepsOthers) {
  const auto before = IndexFile::load(path_);
  const IndexFile* others[] = {&*before};
  const std::string path = directory_.file("other");
  const Indexes changed({index_of({0, 16}, 9)});
  const auto saved = [&](const std::optional<std::string>& directory) {
    save_indexes(path, Strings{"a"}, changed, others, directory);
    return *IndexFile::load(path);
  };
  const IndexFile all = saved(std::nullopt);
  EXPECT_EQ(all.identity(*all.find("a")), (FileIdentity{16, 9}));
  EXPECT_EQ(all.identity(*all.find("b")), (FileIdentity{99, 3}));
  const std::string directory = directory_.file("");
  EXPECT_FALSE(saved(directory).find("b")) << "the directory has no file b";
  directory_.write("b", "");
  EXPECT_TRUE(saved(directory).find("b"));
  EXPECT_THROW(save_indexes(path, Strings{}, changed, others, std::nullopt),
               std::invalid_argument);
}

TEST_F(IndexQueryTest, SavesNoIndexWithGaps) {
  const std::vector<std::uint64_t> ends{0, 20};
  const std::vector<std::uint32_t> crcs{1};
  const Indexes indexes({Index::of_stream(
      ends, crcs, {SkippedSpan{1, 20, 30, Error(Errc::kPayloadCrc, "", "")}}, {99, 3},
      Content::kGzip)});
  EXPECT_TRUE(indexes.has_gaps());
  save_indexes(path_, Strings{"a"}, indexes, {}, std::nullopt);
  EXPECT_EQ(IndexFile::load(path_)->size(), 0u);
}

TEST(Paths, AreSplitAtNulBytes) {
  EXPECT_EQ(split_paths(""), Strings{});
  EXPECT_EQ(split_paths("a"), Strings{"a"});
  EXPECT_EQ(split_paths(std::string_view("a\0\0b c\0", 7)),
            (Strings{"a", "", "b c", ""}));
}

TEST(Paths, HaveVersionsAndContentsInTheirOrder) {
  const testing::TemporaryDirectory directory;
  Strings paths;
  for (std::size_t i = 0; i < 500; ++i) {
    paths.push_back(directory.write(
        std::to_string(i), (i % 2 ? "x" : "\x1f\x8b\x08") + std::string(i, 'y')));
  }
  for (const std::size_t n_threads : {std::size_t{1}, std::size_t{4}}) {
    const std::vector<FileIdentity> versions = versions_of(paths, n_threads);
    const std::vector<std::uint8_t> flags = may_be_compressed(paths, n_threads);
    for (std::size_t i = 0; i < paths.size(); ++i) {
      EXPECT_EQ(versions[i].size, i + (i % 2 ? 1 : 3));
      EXPECT_EQ(flags[i], i % 2 == 0);
    }
  }
  for (const std::size_t absent :
       {std::size_t{499}, std::size_t{300}, std::size_t{70}}) {
    paths[absent] = directory.file("absent" + std::to_string(absent));
  }
  for (const auto ask : {+[](const Strings& of) { (void)versions_of(of, 4); },
                         +[](const Strings& of) { (void)may_be_compressed(of, 4); }}) {
    try {
      ask(paths);
      FAIL() << "a file does not exist";
    } catch (const IoError& error) {
      EXPECT_EQ(error.path, paths[70]);
    }
  }
}

}  // namespace
}  // namespace fastrec
