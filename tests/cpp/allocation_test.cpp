// Allocation failures while files are read, indexed or written.
//
// Goal: whichever allocation fails, the result is std::bad_alloc, without a crash or a
// hang, and the same work succeeds the next time. Method: the operator new of this
// program fails at the k-th call, for every k until the work succeeds.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "encode/frame_buffer.h"
#include "file/byte_streams.h"
#include "file/range_requests.h"
#include "loader/order.h"
#include "loader/pipeline.h"
#include "loader/walked_claims.h"
#include "record/index.h"
#include "record/index_file.h"
#include "records.h"

namespace {

// Allocations up to the one that fails.
std::atomic<std::int64_t> n_left{std::numeric_limits<std::int64_t>::max()};

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (n_left.fetch_sub(1) == 1) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace fastrec {
namespace {

constexpr std::uint64_t kRecords = 60;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::string content() {
  std::string file;
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    file += testing::frame_of(testing::example_of(testing::entry_of(
        "number", testing::int64_feature({static_cast<std::int64_t>(i)}))));
  }
  return file;
}

// Repeats `work` with a failure at each allocation. Returns the number of allocations.
template <typename Work>
int fail_every_allocation(const Work& work) {
  bool is_through = false;
  int n_failed = 0;
  for (std::int64_t k = 1; !is_through && k < 100'000; ++k) {
    try {
      n_left = k;
      work();
      // With threads, the number of allocations depends on scheduling.
      is_through = n_left.exchange(kNever) > 0;
    } catch (const std::bad_alloc&) {
      n_left = kNever;
      ++n_failed;
    }
  }
  EXPECT_TRUE(is_through);
  work();
  return n_failed;
}

enum class Source : std::uint8_t { kWalked, kIndexed, kStreamed };

class AllocationTest : public ::testing::TestWithParam<unsigned> {
 protected:
  AllocationTest() : content_(content()) {
    path_ = directory_.write("data", content_);
    std::string damaged = content_;
    damaged[20 * (content_.size() / kRecords)] ^= 1;  // frames have the same size
    damaged_path_ = directory_.write("damaged", damaged);
  }

  // Everything from opening the file to its last batch. Returns the number of rows.
  std::uint64_t read(Source source, Recovery recovery) const {
    const std::string& path = recovery == Recovery::kNone ? path_ : damaged_path_;
    auto schema = std::make_shared<Schema>();
    ColumnSpec spec;
    spec.key = "number";
    spec.kind = FeatureKind::kInt64;
    spec.dtype = DType::kInt64;
    spec.item_bytes = 8;
    schema->columns.push_back(spec);
    auto files = std::make_shared<FileTable>(std::vector<std::string>{path},
                                             std::vector<Io>{Io::kAuto});
    auto sources = std::make_shared<const Sources>(Sources{files, {schema}, {}});
    StepGrid grid{.batch_size = 7};
    std::unique_ptr<Claims> claims;
    if (source == Source::kIndexed) {
      ScanProgress progress;
      std::vector<Index> indexes;
      indexes.push_back(Index::build(*files->open(0), 2, &progress, recovery));
      grid.n_positions = indexes[0].size();
      auto order = std::make_shared<const ShuffledOrder>(grid.n_positions, 1);
      claims = std::make_unique<IndexedClaims>(
          files, std::make_shared<const Catalog>(std::move(indexes)), std::move(order),
          grid, 0);
    } else if (source == Source::kWalked) {
      claims = std::make_unique<WalkedClaims>(files, grid, recovery);
    } else {
      auto streams = std::make_shared<ByteStreams>(1, 1, SIZE_MAX);
      streams->begin();
      for (std::size_t at = 0; at < content_.size(); at += 100) {
        streams->push(0, as_bytes(content_).subspan(
                             at, std::min<std::size_t>(100, content_.size() - at)));
      }
      streams->end(0);
      claims = std::make_unique<StreamClaims>(
          FrameStream(streams, files, {0}, {}, recovery), grid,
          StreamShape{.bytes_max = 1 << 20}, std::nullopt);
    }
    Pipeline pipeline(std::move(claims), sources, std::make_shared<BlockPool>(1 << 20),
                      {.n_threads = GetParam()});
    std::uint64_t n_rows = 0;
    Delivery delivery;
    while (true) {
      const auto outcome = pipeline.next(std::chrono::milliseconds(50), &delivery);
      if (outcome == Pipeline::Outcome::kEnd) return n_rows;
      if (outcome == Pipeline::Outcome::kBatch) n_rows += delivery.n_rows;
    }
  }

 private:
  testing::TemporaryDirectory directory_;
  std::string content_;
  std::string path_;
  std::string damaged_path_;
};

TEST_P(AllocationTest, EveryAllocationOfAReaderMayFail) {
  for (const Source source : {Source::kWalked, Source::kIndexed, Source::kStreamed}) {
    const int n_failed = fail_every_allocation(
        [&] { EXPECT_EQ(read(source, Recovery::kNone), kRecords); });
    EXPECT_GT(n_failed, 20);
  }
}

TEST_P(AllocationTest, AndWhereDamageIsPassedOver) {
  for (const Source source : {Source::kWalked, Source::kIndexed}) {
    const int n_failed = fail_every_allocation(
        [&] { EXPECT_EQ(read(source, Recovery::kResync), kRecords - 1); });
    EXPECT_GT(n_failed, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, AllocationTest, ::testing::Values(0u, 1u, 3u));

TEST(Allocation, AnIndexIsWrittenAndLoadedOrNot) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.write("data", content());
  const std::string kept = directory.file("index");
  const FileView view(path, Io::kMmap);
  ScanProgress progress;
  const Index index = Index::build(view, 1, &progress);
  const int n_failed = fail_every_allocation([&] {
    const NamedIndex named[] = {{"data", &index}};
    save_index_file(kept, named);
    const std::optional<IndexFile> file = IndexFile::load(kept);
    ASSERT_TRUE(file);
    const std::optional<Index> loaded = file->index(0);
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->size(), kRecords);
  });
  EXPECT_GT(n_failed, 0);
}

TEST(Allocation, RemoteBytesArriveWhateverFails) {
  std::string file(3'000, '\0');
  for (std::size_t i = 0; i < file.size(); ++i) file[i] = static_cast<char>(i % 251);
  const auto retried = [](const auto& call) {
    while (true) {
      try {
        return call();
      } catch (const std::bad_alloc&) {
        continue;
      }
    }
  };
  // Without a limit, extents are joined; with a small one, they are evicted.
  for (const std::uint64_t memory_bytes : {1'000'000U, 20'000U}) {
    int n_failed = 0;
    bool is_through = false;
    for (std::int64_t k = 1; !is_through && k < 10'000; ++k) {
      auto requests =
          std::make_shared<RangeRequests>(RangeLimits{memory_bytes, 40, 10});
      std::thread fetcher([&] {
        while (true) {
          const auto request = retried([&] { return requests->take(std::nullopt); });
          if (!request) return;
          const Bytes bytes =
              as_bytes(file).subspan(request->begin, request->end - request->begin);
          retried([&] { requests->complete(request->id, bytes, nullptr); });
        }
      });
      Buffer buffer;
      n_left = k;
      requests->read_ahead(0, 300, 100);
      requests->read_ahead(0, 0, 200);
      for (const std::uint64_t offset : {500U, 0U, 900U}) {
        const Bytes found =
            retried([&] { return requests->read(0, offset, 2'000, &buffer); });
        const Bytes expected = as_bytes(file).subspan(offset, 2'000);
        EXPECT_TRUE(std::ranges::equal(found, expected));
      }
      is_through = n_left.exchange(kNever) > 0;
      n_failed += !is_through;
      requests->stop();
      fetcher.join();
    }
    EXPECT_TRUE(is_through);
    EXPECT_GT(n_failed, 10);
  }
}

TEST(Allocation, ABufferHasWholeFramesWhateverFails) {
  const std::string large(std::size_t{3} << 20, 'x');
  const int n_failed = fail_every_allocation([&] {
    FrameBuffer buffer(std::make_shared<BlockPool>(1 << 20));
    const auto add = [&](std::string_view payload) {
      const std::size_t n_records = buffer.n_records();
      const std::uint64_t n_bytes = buffer.n_bytes();
      try {
        buffer.add(as_bytes(payload));
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(buffer.n_records(), n_records);  // unchanged
        EXPECT_EQ(buffer.n_bytes(), n_bytes);
        throw;
      }
    };
    add("small");
    add(large);
    const Frames frames = buffer.take();
    EXPECT_EQ(as_text(frames.bytes()), testing::file_of({"small", large}));
  });
  EXPECT_GT(n_failed, 3);
}

}  // namespace
}  // namespace fastrec
