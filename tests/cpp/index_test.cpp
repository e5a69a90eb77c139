// Tests of PackedOffsets, Index and IndexFile.
//
// Goal: packed offsets are the offsets that were packed, whatever they are; an index file
// returns the indexes that were saved, for the names they were saved under; no altered
// file, and no forged one, returns anything else. Method: random and hostile offsets;
// every flipped bit and every truncation of an index file; files with valid checksums
// and wrong sizes; files whose records were swapped, and damaged ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "crc32c/crc32c.h"
#include "record/index_file.h"
#include "record/indexes.h"
#include "records.h"

namespace fastrec {
namespace {

using Offsets = std::vector<std::uint64_t>;

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kHeaderSize = 40, kEntrySize = 32;

void expect_packed(const Offsets& offsets) {
  const Packed packed(offsets);
  const std::uint64_t n = offsets.size() - 1;
  ASSERT_EQ(packed.words.size() * 8, PackedOffsets::size_of(n, packed.width));
  const PackedOffsets unpacked(
      reinterpret_cast<const std::uint8_t*>(packed.words.data()), n, packed.width);
  for (std::uint64_t i = 0; i <= n; ++i) ASSERT_EQ(unpacked[i], offsets[i]) << i;
}

TEST(PackedOffsets, AreTheOffsetsThatWerePacked) {
  std::mt19937_64 random(20261123);
  for (int round = 0; round < 2000; ++round) {
    Offsets offsets{random() % 3 == 0 ? random() : 0};
    const std::uint64_t n = random() % 300, mean = random() % 10000;
    const std::uint64_t spread = std::uint64_t{1} << random() % 34;
    for (std::uint64_t i = 0; i < n; ++i) {
      offsets.push_back(offsets.back() + mean + random() % spread);
    }
    expect_packed(offsets);
  }
}

TEST(PackedOffsets, MayBeAnyNumbers) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    Offsets offsets(1 + random() % 200);
    for (std::uint64_t& offset : offsets) offset = random() >> random() % 64;
    expect_packed(offsets);
  }
  expect_packed({0});
  expect_packed({kMax});
  expect_packed({kMax, 0, kMax, 0});
  expect_packed({0, kMax, 0, kMax / 2, 1, kMax});
  expect_packed({0, std::uint64_t{1} << 40, std::uint64_t{1} << 41});
}

TEST(PackedOffsets, OfEqualRecordsTakeLessThanTwoBits) {
  Offsets offsets;
  for (std::uint64_t i = 0; i <= 64000; ++i) offsets.push_back(i * 1016);
  EXPECT_EQ(Packed(offsets).width, 0u);
  EXPECT_LT(Packed(offsets).words.size() * 8, 64000u / 4);
}

TEST(PackedOffsets, HaveNoSizeThatOverflows) {
  EXPECT_FALSE(PackedOffsets::size_of(kMax, 0));
  EXPECT_FALSE(PackedOffsets::size_of(kMax / 64, 64));
  EXPECT_FALSE(PackedOffsets::size_of(1, 65));
  EXPECT_FALSE(PackedOffsets::size_of(std::uint64_t{1} << 48, 1));
  EXPECT_TRUE(PackedOffsets::size_of((std::uint64_t{1} << 48) - 1, 64));
}

Index index_of(const Offsets& offsets, std::int64_t mtime_ns) {
  return Index::from_offsets(offsets, {offsets.back(), mtime_ns}, "made up");
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {(std::istreambuf_iterator<char>(in)), {}};
}

class IndexFileTest : public ::testing::Test {
 protected:
  IndexFileTest() {
    indexes_.emplace("b", index_of({0, 17, 33, 52}, 5));
    indexes_.emplace("a/b", index_of({0}, -1));
    Offsets offsets{0};
    for (std::uint64_t i = 1; i < 200; ++i) offsets.push_back(i * i * 1000);
    indexes_.emplace("", index_of(offsets, 7));
    const Offsets ends{0, 20, 36};
    const std::vector<std::uint32_t> crcs{0xdeadbeef, 7};
    indexes_.emplace("c", Index::of_stream(ends, crcs, {}, {99, 3}, Content::kGzip));
  }

  std::string saved() {
    std::vector<NamedIndex> named;
    for (const auto& [name, index] : indexes_) named.push_back({name, &index});
    std::ranges::reverse(named);
    save_index_file(directory_.file("index"), named);
    return read(directory_.file("index"));
  }

  std::optional<IndexFile> load(const std::string& content) {
    return IndexFile::load(directory_.write("loaded", content));
  }

  static bool equal(const Index& a, const Index& b) {
    if (a.offsets() != b.offsets() || a.identity() != b.identity()) return false;
    if (a.content() != b.content()) return false;
    if (a.has_payload_crcs() != b.has_payload_crcs()) return false;
    for (std::uint64_t i = 0; a.has_payload_crcs() && i < a.size(); ++i) {
      if (a.payload_crc(i) != b.payload_crc(i)) return false;
    }
    return true;
  }

  testing::TemporaryDirectory directory_;
  std::map<std::string, Index> indexes_;
};

TEST_F(IndexFileTest, ReturnsWhatWasSaved) {
  const auto file = load(saved());
  ASSERT_TRUE(file);
  ASSERT_EQ(file->size(), indexes_.size());
  for (const auto& [name, index] : indexes_) {
    for (std::size_t hint = 0; hint < 6; ++hint) {
      const auto found = file->find(name, hint);
      ASSERT_TRUE(found) << name;
      EXPECT_EQ(file->name(*found), name);
      EXPECT_EQ(file->identity(*found), index.identity());
      const auto loaded = file->index(*found);
      ASSERT_TRUE(loaded) << name;
      EXPECT_TRUE(equal(*loaded, index)) << name;
    }
  }
  for (const char* absent : {"a", "bb", "d", "a/", "\xff"}) {
    EXPECT_FALSE(file->find(absent)) << absent;
  }
  EXPECT_FALSE(IndexFile::load(directory_.file("absent")));
}

TEST_F(IndexFileTest, KeepsTheFirstIndexOfAName) {
  const Index one = index_of({0, 16}, 1), two = index_of({0, 16, 32}, 2);
  const NamedIndex named[] = {{"x", &one}, {"x", &two}, {"w", &two}};
  save_index_file(directory_.file("index"), named);
  const auto file = IndexFile::load(directory_.file("index"));
  ASSERT_TRUE(file);
  ASSERT_EQ(file->size(), 2u);
  EXPECT_TRUE(equal(*file->index(*file->find("x")), one));
}

TEST_F(IndexFileTest, MayBeEmptyOrLargeAndMapped) {
  save_index_file(directory_.file("index"), {});
  const auto empty = IndexFile::load(directory_.file("index"));
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->size(), 0u);
  EXPECT_FALSE(empty->find(""));

  std::mt19937_64 random(3);
  Offsets offsets{0};
  for (int i = 0; i < 1'000'000; ++i)
    offsets.push_back(offsets.back() + random() % 4096);
  indexes_.insert_or_assign("large", index_of(offsets, 9));
  const std::string content = saved();
  EXPECT_GT(content.size(), std::size_t{1} << 20);
  const auto file = load(content);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->index(*file->find("large"))->offsets(), offsets);
}

// The number of indexes that an altered file returns. Fails if one is wrong.
TEST_F(IndexFileTest, ReturnsNoAlteredIndex) {
  const std::string good = saved();
  const auto check = [&](const std::string& bad) {
    const auto file = load(bad);
    if (!file) return std::size_t{0};
    std::size_t n_found = 0;
    for (const auto& [name, index] : indexes_) {
      const auto entry = file->find(name);
      const auto loaded = entry ? file->index(*entry) : std::nullopt;
      if (!loaded) continue;
      EXPECT_TRUE(equal(*loaded, index)) << name;
      ++n_found;
    }
    return n_found;
  };
  EXPECT_EQ(check(good), indexes_.size());
  std::size_t n_partial = 0;
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    const std::size_t n_found = check(bad);
    EXPECT_LT(n_found, indexes_.size()) << "bit " << bit;
    n_partial += n_found != 0;
  }
  EXPECT_GT(n_partial, 0u) << "a damaged block must not affect the other files";
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(check(good.substr(0, size)), 0u) << "size " << size;
  }
  EXPECT_EQ(check(good + '\0'), 0u);
  EXPECT_EQ(check(good + good), 0u);
}

// Makes the checksums of the header and the tables valid.
std::string sealed(std::string file) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(file.data());
  const auto n_files = load_le<std::uint64_t>(bytes + 8);
  const auto names_size = load_le<std::uint64_t>(bytes + 16);
  store_le(bytes + 24, std::uint64_t{file.size()});
  const std::uint64_t tables = n_files * kEntrySize + (names_size + 7) / 8 * 8;
  if (n_files < 1000 && names_size < 1000 && tables <= file.size() - kHeaderSize) {
    store_le(bytes + 32, crc32c({bytes + kHeaderSize, tables}));
  }
  store_le(bytes + 36, crc32c({bytes, 36}));
  return file;
}

template <typename Value>
std::string with(std::string file, std::size_t at, Value value) {
  store_le(reinterpret_cast<std::uint8_t*>(file.data()) + at, value);
  return sealed(std::move(file));
}

TEST_F(IndexFileTest, ReadsItsTablesOnce) {
  // As another process may overwrite a file that this one has mapped.
  auto content = std::make_shared<std::string>(saved());
  const auto file = IndexFile::of({content, as_bytes(*content)});
  ASSERT_TRUE(file);
  std::ranges::fill(*content, '\xff');
  ASSERT_EQ(file->size(), indexes_.size());
  for (const auto& [name, index] : indexes_) {
    const auto found = file->find(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(file->identity(*found), index.identity());
    EXPECT_EQ(file->content(*found), index.content());
    EXPECT_FALSE(file->index(*found)) << "a block was altered";
  }
}

TEST_F(IndexFileTest, IsNotLoadedIfForgedWithValidChecksums) {
  const std::string good = saved();
  ASSERT_TRUE(load(sealed(good)));
  for (const std::uint64_t n :
       {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{6}, kMax, kMax / 32,
        kMax / 32 + 1, (kMax - kHeaderSize) / 32}) {
    EXPECT_FALSE(load(with(good, 8, n))) << n;   // files
    EXPECT_FALSE(load(with(good, 16, n))) << n;  // bytes of names
    const std::size_t entry = kHeaderSize + 16;
    EXPECT_FALSE(load(with(good, entry, n))) << n;  // records of the first file
  }
  for (const unsigned width : {0u, 64u, 65u, 255u}) {
    EXPECT_FALSE(load(with(good, kHeaderSize + 30, static_cast<std::uint8_t>(width))));
  }
  for (const unsigned flags : {3u, 127u, 128u, 131u, 255u}) {
    EXPECT_FALSE(load(with(good, kHeaderSize + 31, static_cast<std::uint8_t>(flags))));
  }
  EXPECT_FALSE(load(with(good, kHeaderSize + 28, std::uint16_t{65535})));  // a name
  EXPECT_FALSE(load(with(good, kHeaderSize + 28, std::uint16_t{1})));
}

TEST_F(IndexFileTest, HasNoIndexThatDoesNotEndAtTheEndOfItsFile) {
  const std::string good = saved();
  const auto first = load(good);
  ASSERT_TRUE(first && first->index(0));
  const std::uint64_t size = first->identity(0).size;
  for (const std::uint64_t other : {std::uint64_t{0}, size - 1, size + 1, kMax}) {
    const auto file = load(with(good, kHeaderSize, other));
    ASSERT_TRUE(file);
    EXPECT_FALSE(file->index(0)) << other;
    EXPECT_TRUE(file->index(1));
  }
}

// Whether the index of `before` is stale for a file with the content `after`.
bool is_stale(const std::string& before, const std::string& after) {
  const testing::TemporaryDirectory directory;
  ScanProgress progress;
  const FileView old(directory.write("before", before), Io::kPread);
  const Index index = Index::build(old, 1, &progress);
  bool is_stale = false;
  for (const Io io : {Io::kMmap, Io::kPread}) {
    is_stale = index.is_stale({directory.write("after", after), io});
  }
  return is_stale;
}

std::vector<std::string> payloads_of_many_sizes() {
  std::vector<std::string> payloads;
  for (int i = 0; i < 40; ++i) {
    payloads.emplace_back(static_cast<std::size_t>(i * 37 % 101), 'x');
  }
  payloads[20] = testing::file_of({"inner", "", "frames of a record"});
  return payloads;
}

TEST(Index, IsStaleIfAnyRecordsWereSwapped) {
  const std::vector<std::string> payloads = payloads_of_many_sizes();
  const std::string before = testing::file_of(payloads);
  for (std::size_t i = 1; i < payloads.size(); ++i) {
    std::vector<std::string> other = payloads;
    std::swap(other[i - 1], other[i]);
    EXPECT_TRUE(is_stale(before, testing::file_of(other))) << i;
  }
  EXPECT_TRUE(is_stale(before, testing::file_of({std::string(before.size() - 16, 0)})));
  EXPECT_TRUE(is_stale(testing::file_of({std::string(before.size() - 16, 0)}), before));
}

TEST(Index, IsNotStaleIfTheFileIsDamaged) {
  const std::string before = testing::file_of(payloads_of_many_sizes());
  EXPECT_FALSE(is_stale(before, before));
  for (std::size_t i = 0; i < before.size(); i += 3) {
    std::string after = before;
    after[i] = static_cast<char>(after[i] ^ 0x20);
    EXPECT_FALSE(is_stale(before, after)) << i;
    // A lost block, and a lost end.
    after = before;
    const std::size_t n = std::min<std::size_t>(512, before.size() - i);
    after.replace(i, n, std::string(n, '\0'));
    EXPECT_FALSE(is_stale(before, after)) << i;
    after = before.substr(0, i) + std::string(before.size() - i, '\0');
    EXPECT_FALSE(is_stale(before, after)) << i;
  }
}

TEST(Index, IsStaleIfRecordsWereSwappedInADamagedFile) {
  std::vector<std::string> payloads = payloads_of_many_sizes();
  const std::string before = testing::file_of(payloads);
  std::reverse(payloads.begin(), payloads.end());
  std::string after = testing::file_of(payloads);
  for (std::size_t i = 0; i < after.size(); i += 7) {
    std::string damaged = after;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    EXPECT_TRUE(is_stale(before, damaged)) << i;
  }
}

TEST(Indexes, FindTheFileOfARecord) {
  const Indexes indexes(
      {index_of({0, 16}, 0), index_of({0}, 0), index_of({0, 16, 32}, 0)});
  EXPECT_EQ(indexes.n_records(), 3u);
  EXPECT_EQ(indexes.file_of(0), 0u);
  EXPECT_EQ(indexes.file_of(1), 2u);
  EXPECT_EQ(indexes.file_of(2), 2u);
  EXPECT_EQ(indexes.first_record(2), 1u);
}

}  // namespace
}  // namespace fastrec
