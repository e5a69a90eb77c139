// Memory that runs out while files are read.
//
// Goal: wherever an allocation fails, std::bad_alloc comes out, nothing ends or hangs,
// and the same reading works the next time. Method: operator new, of this whole
// program, fails at the k-th call, for every k until the reading comes through.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "loader/order.h"
#include "loader/pipeline.h"
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

class AllocationTest : public ::testing::TestWithParam<unsigned> {
 protected:
  AllocationTest() {
    std::string file;
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      file += testing::frame_of(testing::example_of(testing::entry_of(
          "number", testing::int64_feature({static_cast<std::int64_t>(i)}))));
    }
    path_ = directory_.write("data", file);
  }

  // Everything from opening the file to its last batch. Returns how many rows came.
  std::uint64_t read(bool is_indexed) const {
    auto schema = std::make_shared<Schema>();
    ColumnSpec spec;
    spec.key = "number";
    spec.kind = FeatureKind::kInt64;
    spec.dtype = DType::kInt64;
    spec.item_bytes = 8;
    schema->columns.push_back(spec);
    auto files = std::make_shared<FileTable>(std::vector<std::string>{path_},
                                             std::vector<Io>{Io::kAuto});
    auto sources = std::make_shared<const Sources>(Sources{files, {schema}, {}});
    StepGrid grid{.batch_size = 7};
    std::unique_ptr<Claims> claims;
    if (is_indexed) {
      ScanProgress progress;
      std::vector<Index> indexes;
      indexes.push_back(Index::build(*files->open(0), 2, &progress));
      grid.n_positions = indexes[0].size();
      claims = std::make_unique<IndexedClaims>(
          files, std::make_shared<const Catalog>(std::move(indexes)),
          std::make_shared<const ShuffledOrder>(kRecords, 1), grid, 0);
    } else {
      claims = std::make_unique<WalkedClaims>(files, grid);
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
  std::string path_;
};

TEST_P(AllocationTest, EveryAllocationMayFail) {
  for (const bool is_indexed : {false, true}) {
    bool is_through = false;
    int n_failed = 0;
    for (std::int64_t k = 1; !is_through; ++k) {
      ASSERT_LT(k, 100'000);
      try {
        n_left = k;
        const std::uint64_t n_rows = read(is_indexed);
        // With threads, the number of allocations depends on who does what.
        is_through = n_left.exchange(std::numeric_limits<std::int64_t>::max()) > 0;
        EXPECT_EQ(n_rows, kRecords);
      } catch (const std::bad_alloc&) {
        n_left = std::numeric_limits<std::int64_t>::max();
        ++n_failed;
      }
    }
    EXPECT_GT(n_failed, 20);
    EXPECT_EQ(read(is_indexed), kRecords);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, AllocationTest, ::testing::Values(0u, 1u, 3u));

}  // namespace
}  // namespace fastrec
