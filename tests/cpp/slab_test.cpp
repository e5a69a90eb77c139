// Blocks and their pool.
//
// Goal: memory is recycled once its last reference is gone, and never before; a batch
// does not keep arrays alive that the caller dropped. Method: keep some arrays, drop
// others, and check the blocks that the pool returns.

#include "batch/slab.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <thread>
#include <vector>

#include "batch/column.h"

namespace fastrec {
namespace {

TEST(BlockPool, ABlockComesBackOnlyAfterItsLastOwner) {
  const auto pool = std::make_shared<BlockPool>(1 << 20);
  auto first = pool->take(5000);
  auto second_owner = first;
  const std::uint8_t* memory = first->data();
  first.reset();
  EXPECT_NE(pool->take(5000)->data(), memory);
  second_owner.reset();
  EXPECT_EQ(pool->take(5000)->data(), memory);
}

TEST(BlockPool, BlocksAreAlignedAndLargeEnough) {
  const auto pool = std::make_shared<BlockPool>(64 << 20);
  for (std::size_t size = 1; size < (std::size_t{9} << 20); size = size * 3 / 2 + 1) {
    const auto block = pool->take(size);
    EXPECT_GE(block->size(), size);
    EXPECT_LE(block->size(), size + size / 4 + 4096);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->data()) % Block::kAlignment, 0u);
    std::memset(block->data(), 1, block->size());
  }
}

TEST(BlockPool, IdleBlocksStayBelowTheLimit) {
  const auto pool = std::make_shared<BlockPool>(100'000);
  std::vector<std::shared_ptr<Block>> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(pool->take(32'768));
  blocks.clear();
  EXPECT_EQ(pool->stats().n_idle, 3u);
  EXPECT_LE(pool->stats().idle_bytes, 100'000u);
}

TEST(BlockPool, BlocksOutliveTheirPool) {
  std::shared_ptr<Block> block;
  {
    const auto pool = std::make_shared<BlockPool>(1 << 20);
    block = pool->take(100);
  }
  std::memset(block->data(), 7, block->size());
}

TEST(BlockPool, ThreadsMayTakeAndDropAtOnce) {
  const auto pool = std::make_shared<BlockPool>(1 << 20);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (unsigned i = 0; i < 500; ++i) {
        const auto block = pool->take(1000 * (1 + (t + i) % 7));
        std::memset(block->data(), static_cast<int>(t), block->size());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool->stats().n_allocated, 28u);
}

// An allocator that counts allocations and releases.
class CountedMemory {
 public:
  Allocator allocator() {
    return [this](std::size_t size) -> ForeignMemory {
      ++n_made;
      auto block = std::make_shared<Block>(size);
      std::uint8_t* data = block->data();
      return {data, std::shared_ptr<void>(data, [this, block](void*) { ++n_back; })};
    };
  }

  int n_made = 0, n_back = 0;
};

TEST(BlockPool, OnlyReplenishCallsTheAllocator) {
  CountedMemory memory;
  const auto pool = std::make_shared<BlockPool>(1 << 20, memory.allocator(), true);
  auto first = pool->take(5000);
  auto second = pool->take(5000);
  EXPECT_EQ(memory.n_made, 0);
  EXPECT_EQ(first->owner(), nullptr);
  pool->replenish();
  EXPECT_EQ(memory.n_made, 2);
  pool->replenish();
  EXPECT_EQ(memory.n_made, 2) << "what is there need not be made again";
  const auto third = pool->take(5000);
  EXPECT_NE(third->owner(), nullptr);
  EXPECT_TRUE(std::has_single_bit(third->size())) << "what such allocators round up to";
}

TEST(BlockPool, BlocksOfTheAllocatorAreUsedAgainAndThoseOfTheSystemAreNot) {
  CountedMemory memory;
  const auto pool = std::make_shared<BlockPool>(1 << 20, memory.allocator(), true);
  pool->take(5000);
  EXPECT_EQ(pool->stats().n_idle, 0u);
  pool->replenish();
  const std::uint8_t* data = pool->take(5000)->data();
  EXPECT_EQ(pool->take(5000)->data(), data);
  pool->replenish();
  EXPECT_EQ(memory.n_made, 1);
  EXPECT_EQ(memory.n_back, 0);
}

TEST(BlockPool, WithoutRecyclingEachBlockGoesBackOnceItWasUsed) {
  CountedMemory memory;
  const auto pool = std::make_shared<BlockPool>(1 << 20, memory.allocator(), false);
  pool->take(5000);
  pool->replenish();
  auto used = pool->take(5000);
  EXPECT_NE(used->owner(), nullptr);
  used.reset();
  EXPECT_EQ(memory.n_back, 0) << "only replenish() gives memory back";
  pool->replenish();
  EXPECT_EQ(memory.n_back, 1);
  EXPECT_EQ(memory.n_made, 2);
  EXPECT_NE(pool->take(5000)->owner(), nullptr);
}

TEST(BlockPool, ABlockInUseDoesNotKeepWhatIsIdle) {
  CountedMemory memory;
  std::shared_ptr<Block> held;
  {
    const auto pool = std::make_shared<BlockPool>(1 << 20, memory.allocator(), true);
    for (int i = 0; i < 2; ++i) {
      auto other = pool->take(5000);
      held = pool->take(5000);
      pool->replenish();
    }
    EXPECT_NE(held->owner(), nullptr);
  }
  EXPECT_EQ(memory.n_back, memory.n_made - 1);
  held.reset();
  EXPECT_EQ(memory.n_back, memory.n_made);
}

TEST(BlockPool, TheAllocatorGetsItsMemoryBackAboveTheLimitAndAtTheEnd) {
  CountedMemory memory;
  {
    const auto pool = std::make_shared<BlockPool>(100'000, memory.allocator(), true);
    for (int i = 0; i < 2; ++i) {
      std::vector<std::shared_ptr<Block>> blocks;
      for (int j = 0; j < 3; ++j) blocks.push_back(pool->take(32'768));
      blocks.push_back(pool->take(65'536));
      blocks.clear();
      pool->replenish();
      EXPECT_LE(pool->stats().idle_bytes, 100'000u);
    }
    pool->take(200'000);
    pool->replenish();
    EXPECT_LE(pool->stats().idle_bytes, 100'000u);
    EXPECT_GT(memory.n_back, 0);
  }
  EXPECT_EQ(memory.n_back, memory.n_made);
}

std::shared_ptr<const Schema> image_and_label() {
  auto schema = std::make_shared<Schema>();
  ColumnSpec image;
  image.layout = Layout::kRaw;
  image.dtype = DType::kOpaque;
  image.item_bytes = 1;
  image.n_values = 100'000;
  ColumnSpec label;
  label.item_bytes = 8;
  schema->columns = {image, label, label};
  return schema;
}

std::shared_ptr<const Schema> byte_strings() {
  auto schema = std::make_shared<Schema>();
  ColumnSpec strings;
  strings.kind = FeatureKind::kBytes;
  strings.dtype = DType::kBytes;
  schema->columns = {strings};
  return schema;
}

TEST(BatchBuilder, SmallColumnsShareABlockAndLargeOnesHaveTheirOwn) {
  auto pool = std::make_shared<BlockPool>(std::size_t{64} << 20);
  BatchBuilder builder(image_and_label(), pool);
  builder.begin(8);
  Batch batch = builder.finish(8);
  EXPECT_NE(batch.columns[0].values.block, batch.columns[1].values.block);
  EXPECT_EQ(batch.columns[1].values.block, batch.columns[2].values.block);

  const auto label = batch.blocks[batch.columns[1].values.block];
  batch = {};
  EXPECT_EQ(pool->stats().n_idle, 1u);  // the images are free, the labels are not
}

TEST(BatchBuilder, ALabelDoesNotKeepItsImage) {
  auto schema = std::make_shared<Schema>(*image_and_label());
  schema->columns[0].n_values = 784;
  auto pool = std::make_shared<BlockPool>(std::size_t{64} << 20);
  BatchBuilder builder(schema, pool);
  for (const std::size_t n_rows : {1U, 20U, 256U}) {
    builder.begin(n_rows);
    const Batch batch = builder.finish(n_rows);
    EXPECT_LE(batch.blocks[batch.columns[1].values.block]->size(),
              2 * 8 * n_rows + 4096);
  }
}

TEST(BatchBuilder, RowsThatWereSkippedLeaveNoRoomInTheirBlocks) {
  auto pool = std::make_shared<BlockPool>(std::size_t{64} << 20);
  BatchBuilder builder(image_and_label(), pool);
  builder.begin(64);
  for (std::size_t row = 0; row < 64; ++row) {
    std::memset(builder.row(0, row), 7, 100'000);
  }
  const Batch batch = builder.finish(2);
  EXPECT_LE(batch.blocks[batch.columns[0].values.block]->size(), 2 * 200'000u + 4096);
  EXPECT_EQ(batch.columns[0].values.data[199'999], 7);
  EXPECT_EQ(batch.n_bytes, batch.blocks[batch.columns[0].values.block]->size() +
                               batch.blocks[batch.columns[1].values.block]->size());
}

TEST(BatchBuilder, AHugeBatchDoesNotKeepItsMemoryInTheNextOnes) {
  const auto schema = byte_strings();
  auto pool = std::make_shared<BlockPool>(std::size_t{64} << 20);
  BatchBuilder builder(schema, pool);
  const auto batch_of = [&](std::size_t size) {
    const std::vector<std::uint8_t> string(size, 7);
    builder.begin(1);
    builder.append_string(0, string);
    return builder.finish(1);
  };

  const Batch huge = batch_of(std::size_t{8} << 20);
  EXPECT_LE(huge.n_bytes, std::size_t{9} << 20);
  const Batch small = batch_of(300'000);
  EXPECT_LE(small.n_bytes, 500'000u);
  EXPECT_EQ(small.columns[0].values.data[299'999], 7);
  // The pool has the block that was allocated for another huge one.
  EXPECT_GE(pool->stats().idle_bytes, std::size_t{8} << 20);
  const Batch next = batch_of(300'000);
  EXPECT_LE(next.n_bytes, 500'000u);
}

TEST(BatchBuilder, TheFirstBatchDoesNotCopyItsStringsAsItGrows) {
  const auto schema = byte_strings();
  auto pool = std::make_shared<BlockPool>(std::size_t{64} << 20);
  BatchBuilder builder(schema, pool);
  builder.begin(64, 64 * 100'100);
  for (std::size_t row = 0; row < 64; ++row) builder.extend_string(0, 100'000);
  EXPECT_EQ(pool->stats().n_allocated, 2u);  // strings, and their offsets

  // One long string does not reserve memory beyond the size of the records.
  const auto other_pool = std::make_shared<BlockPool>(std::size_t{256} << 20);
  BatchBuilder other(schema, other_pool);
  other.begin(64, 3 << 20);
  other.extend_string(0, 2 << 20);
  (void)other.finish(0);
  EXPECT_GE(other_pool->stats().idle_bytes, std::size_t{2} << 20);
  EXPECT_LE(other_pool->stats().idle_bytes, std::size_t{5} << 20);
}

TEST(BatchBuilder, NoBlockIsAllocatedOnceBatchesRecur) {
  auto pool = std::make_shared<BlockPool>(std::size_t{64} << 20);
  BatchBuilder builder(image_and_label(), pool);
  for (int i = 0; i < 20; ++i) {
    builder.begin(8);
    (void)builder.finish(8);
  }
  EXPECT_EQ(pool->stats().n_allocated, 2u);
}

}  // namespace
}  // namespace fastrec
