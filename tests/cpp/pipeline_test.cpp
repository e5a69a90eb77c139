// The pipeline with every number of threads.
//
// Goal: the same batches in the same order, the first error in that order, and a prompt
// stop at any time. Method: files whose records hold their own number, read in file
// order and by an index; errors in steps that finish after later ones.

#include "loader/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "loader/order.h"
#include "loader/walked_claims.h"
#include "records.h"

namespace fastrec {
namespace {

using std::chrono::milliseconds;
using testing::entry_of;
using testing::example_of;
using testing::int64_feature;

constexpr std::uint64_t kRecords = 1000;

std::shared_ptr<const Schema> number_column(DType dtype = DType::kInt64,
                                            std::size_t item_bytes = 8) {
  auto schema = std::make_shared<Schema>();
  ColumnSpec spec;
  spec.key = "number";
  spec.kind = FeatureKind::kInt64;
  spec.dtype = dtype;
  spec.item_bytes = item_bytes;
  schema->columns.push_back(spec);
  return schema;
}

// The column of a part.
template <typename Number>
std::vector<std::uint64_t> numbers_in(const Part& part) {
  const auto* numbers =
      reinterpret_cast<const Number*>(part.batch.columns[0].values.data);
  return {numbers, numbers + part.batch.n_rows};
}

class PipelineTest : public ::testing::TestWithParam<unsigned> {
 protected:
  // Three files of records that hold their number. `bad_record` has no feature.
  std::shared_ptr<const Sources> write(std::uint64_t bad_record = kRecords) {
    std::vector<std::string> paths;
    std::uint64_t number = 0;
    for (const std::uint64_t end : {std::uint64_t{300}, std::uint64_t{301}, kRecords}) {
      std::string file;
      for (; number < end; ++number) {
        const auto value = static_cast<std::int64_t>(number);
        file += testing::frame_of(
            number == bad_record
                ? ""
                : example_of(entry_of("number", int64_feature({value}))));
      }
      paths.push_back(directory_.write("data-" + std::to_string(end), file));
    }
    auto files =
        std::make_shared<FileTable>(std::move(paths), std::vector<Io>{Io::kAuto});
    return std::make_shared<const Sources>(
        Sources{std::move(files), {number_column()}, {}});
  }

  // The same, but records 0 to 300, in two files, have a separate schema.
  std::shared_ptr<const Sources> write_with_two_schemas() {
    Sources sources = *write();
    sources.schemas = {number_column(), number_column(DType::kInt32, 4)};
    sources.schema_of = {1, 1, 0};
    return std::make_shared<const Sources>(std::move(sources));
  }

  static std::unique_ptr<Pipeline> start(std::unique_ptr<Claims> claims,
                                         std::shared_ptr<const Sources> sources,
                                         PipelineOptions options) {
    return std::make_unique<Pipeline>(std::move(claims), std::move(sources),
                                      std::make_shared<BlockPool>(1 << 20), options);
  }

  static std::unique_ptr<Pipeline> start(std::shared_ptr<const Sources> sources,
                                         PipelineOptions options,
                                         std::uint64_t batch_size = 7,
                                         bool pad_last = false) {
    const StepGrid grid{.batch_size = batch_size, .pad_last = pad_last};
    return start(std::make_unique<WalkedClaims>(sources->files, grid), sources,
                 options);
  }

  // Steps of `order` from `first_step` on. Sets the number of positions of the grid.
  static std::unique_ptr<Pipeline> start(const std::shared_ptr<const Sources>& sources,
                                         PipelineOptions options,
                                         std::shared_ptr<const Order> order,
                                         StepGrid grid, std::uint64_t first_step) {
    std::vector<Index> indexes;
    ScanProgress progress;
    for (std::size_t file = 0; file < sources->files->size(); ++file) {
      indexes.push_back(Index::build(*sources->files->open(file), 1, &progress));
    }
    grid.n_positions = order->size();
    auto claims = std::make_unique<IndexedClaims>(
        sources->files, std::make_shared<const Catalog>(std::move(indexes)),
        std::move(order), std::move(grid), first_step);
    return start(std::move(claims), sources, options);
  }

  // Waits for the next batch. False at the end.
  static bool next(Pipeline* pipeline, Delivery* delivery) {
    Pipeline::Outcome outcome;
    do {
      outcome = pipeline->next(milliseconds(50), delivery);
    } while (outcome == Pipeline::Outcome::kPending);
    return outcome == Pipeline::Outcome::kBatch;
  }

  // Reads batches to the end or the first exception, and checks their order.
  static std::uint64_t drain(Pipeline* pipeline) {
    std::uint64_t n_rows = 0;
    Delivery delivery;
    for (std::uint64_t step = 0; next(pipeline, &delivery); ++step) {
      EXPECT_EQ(delivery.step, step);
      EXPECT_EQ(delivery.parts.size(), 1u);
      EXPECT_EQ(delivery.n_valid, delivery.n_rows);
      const std::vector<std::uint64_t> numbers =
          numbers_in<std::int64_t>(delivery.parts[0]);
      EXPECT_EQ(numbers.size(), delivery.n_rows);
      for (const std::uint64_t number : numbers) EXPECT_EQ(number, n_rows++);
    }
    return n_rows;
  }

  PipelineOptions options() const { return {.n_threads = GetParam(), .prefetch = 4}; }

 private:
  testing::TemporaryDirectory directory_;
};

TEST_P(PipelineTest, DeliversEveryRecordOnceAndInOrder) {
  for (const std::uint64_t batch_size : {1u, 7u, 256u, 1000u, 5000u}) {
    const auto pipeline = start(write(), options(), batch_size);
    EXPECT_EQ(drain(pipeline.get()), kRecords);
    Delivery delivery;
    EXPECT_EQ(pipeline->next(milliseconds(0), &delivery), Pipeline::Outcome::kEnd);
  }
}

TEST_P(PipelineTest, TheBatchesBeforeAnErrorComeFirstAndTheErrorStays) {
  const auto pipeline = start(write(/*bad_record=*/500), options(), 10);
  Delivery delivery;
  for (std::uint64_t step = 0; step < 50; ++step) {
    ASSERT_TRUE(next(pipeline.get(), &delivery));
    EXPECT_EQ(delivery.step, step);
  }
  for (int again = 0; again < 3; ++again) {
    try {
      (void)next(pipeline.get(), &delivery);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::kFeatureMissing);
      EXPECT_EQ(error.record, 199u);  // of the third file
    }
  }
}

TEST_P(PipelineTest, ABadRowIsLeftOutOrMaskedAlone) {
  for (const RowPolicy row_policy : {RowPolicy::kSkip, RowPolicy::kMask}) {
    PipelineOptions tolerant = options();
    tolerant.row_policy = row_policy;
    const auto pipeline = start(write(/*bad_record=*/504), tolerant, 10);
    Delivery delivery;
    for (std::uint64_t step = 0; next(pipeline.get(), &delivery); ++step) {
      std::vector<std::uint64_t> expected(10);
      std::iota(expected.begin(), expected.end(), step * 10);
      EXPECT_EQ(delivery.n_rows, 10u);
      EXPECT_EQ(delivery.unreadable_rows.size(), step == 50 ? 1u : 0u);
      if (step == 50) {
        const UnreadableRow& unreadable = delivery.unreadable_rows.front();
        EXPECT_EQ(unreadable.row, 4u);
        EXPECT_EQ(unreadable.error.code, Errc::kFeatureMissing);
        EXPECT_EQ(unreadable.error.record, 203u);  // of the third file
        expected[4] = 0;
        if (row_policy == RowPolicy::kSkip) expected.erase(expected.begin() + 4);
      }
      EXPECT_EQ(numbers_in<std::int64_t>(delivery.parts[0]), expected);
    }
    EXPECT_EQ(delivery.step, 99u);
  }
}

TEST_P(PipelineTest, AMemoryLimitBelowOneBatchStillDelivers) {
  PipelineOptions tight = options();
  tight.memory_limit = 1;
  EXPECT_EQ(drain(start(write(), tight).get()), kRecords);
}

TEST_P(PipelineTest, CountsTheTimeThatNextDecodes) {
  const auto helped = start(write(), options());
  EXPECT_EQ(helped->helping().count(), 0);
  EXPECT_EQ(drain(helped.get()), kRecords);
  if (GetParam() == 0) {
    EXPECT_GT(helped->helping().count(), 0);
  }

  PipelineOptions alone = options();
  alone.n_threads = std::max(alone.n_threads, 1u);
  alone.is_helping = false;
  const auto waited = start(write(), alone);
  EXPECT_EQ(drain(waited.get()), kRecords);
  EXPECT_EQ(waited->helping().count(), 0);
}

TEST_P(PipelineTest, CountsTheTimeWithoutAReadyBatch) {
  const auto pipeline = start(write(), options());
  EXPECT_EQ(pipeline->starving().count(), 0);
  EXPECT_EQ(drain(pipeline.get()), kRecords);
  EXPECT_GE(pipeline->starving(), pipeline->helping());
  EXPECT_GT(pipeline->starving().count(), 0);  // at least for the first batch
}

TEST_P(PipelineTest, ADeliveryThatIsUsedAgainKeepsNoBlock) {
  const auto sources = write();
  const auto pool = std::make_shared<BlockPool>(1 << 20);
  const StepGrid grid{.batch_size = 7};
  Pipeline pipeline(std::make_unique<WalkedClaims>(sources->files, grid), sources, pool,
                    options());
  Delivery delivery;
  while (next(&pipeline, &delivery)) continue;
  // One block for each slot and thread, and one for the delivery.
  EXPECT_LE(pool->stats().n_allocated, 4u + GetParam() + 2u);
  if (GetParam() == 0) {
    EXPECT_EQ(pool->stats().n_allocated, 1u);
  }
}

// Claims that count themselves.
class CountedClaims final : public Claims {
 public:
  CountedClaims(std::unique_ptr<Claims> claims, std::atomic<std::size_t>* n_claims)
      : claims_(std::move(claims)), n_claims_(n_claims) {}
  void prepare() noexcept override { claims_->prepare(); }
  Outcome next(Claim* claim) override {
    const Outcome outcome = claims_->next(claim);
    if (outcome == Outcome::kStep) ++*n_claims_;
    return outcome;
  }
  void locate(Claim* claim) const override { claims_->locate(claim); }

 private:
  std::unique_ptr<Claims> claims_;
  std::atomic<std::size_t>* n_claims_;
};

TEST_P(PipelineTest, TheRingFillsWhileTheConsumerIsAway) {
  if (GetParam() == 0) return;
  const auto sources = write();
  std::atomic<std::size_t> n_claims{0};
  const StepGrid grid{.batch_size = 7};
  const auto pipeline =
      start(std::make_unique<CountedClaims>(
                std::make_unique<WalkedClaims>(sources->files, grid), &n_claims),
            sources, options());
  Delivery delivery;
  for (std::size_t n_taken = 1; n_taken < 40; ++n_taken) {
    ASSERT_TRUE(next(pipeline.get(), &delivery));
    if (n_taken % 10 != 0) continue;
    // A parked thread resumes without a notification. At least half of the ring is
    // always ready.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (n_claims < n_taken + 2 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_GE(n_claims, n_taken + 2);
  }
}

TEST_P(PipelineTest, EndsWhereverItIsDropped) {
  for (unsigned n_taken = 0; n_taken < 20; ++n_taken) {
    const auto pipeline = start(write(), options());
    Delivery delivery;
    for (unsigned i = 0; i < n_taken; ++i) {
      (void)pipeline->next(milliseconds(50), &delivery);
    }
  }
}

TEST_P(PipelineTest, StopFromAnotherThreadEndsNext) {
  const auto pipeline = start(write(), options(), 1);
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(1));
    pipeline->stop();
  });
  EXPECT_LE(drain(pipeline.get()), kRecords);
  stopper.join();
  Delivery delivery;
  EXPECT_EQ(pipeline->next(milliseconds(0), &delivery), Pipeline::Outcome::kEnd);
}

TEST_P(PipelineTest, ConcurrentConsumersGetDistinctBatches) {
  const auto pipeline = start(write(), options(), 3);
  std::atomic<std::uint64_t> n_rows{0}, sum{0};
  std::vector<std::thread> consumers;
  for (int i = 0; i < 3; ++i) {
    consumers.emplace_back([&] {
      Delivery delivery;
      while (next(pipeline.get(), &delivery)) {
        n_rows += delivery.n_rows;
        sum += numbers_in<std::int64_t>(delivery.parts[0]).front();
      }
    });
  }
  for (std::thread& consumer : consumers) consumer.join();
  EXPECT_EQ(n_rows, kRecords);
  std::uint64_t expected = 0;
  for (std::uint64_t first = 0; first < kRecords; first += 3) expected += first;
  EXPECT_EQ(sum, expected);
}

TEST_P(PipelineTest, AnIndexedEpochGoesOnFromAnyStepInAnyOrder) {
  const auto sources = write();
  const auto order = make_order({.kind = Shuffle::Kind::kShuffled}, kRecords, 5, 3);
  std::vector<std::uint64_t> expected(kRecords);
  std::iota(expected.begin(), expected.end(), std::uint64_t{0});
  order->to_records(expected);

  constexpr std::uint64_t kBatchSize = 16, kSteps = 63, kWorldSize = 3;
  for (const std::uint64_t first_step : {0u, 1u, 40u, 62u, 63u}) {
    for (std::uint64_t rank = 0; rank < kWorldSize; ++rank) {
      const StepGrid grid{
          .batch_size = kBatchSize, .rank = rank, .world_size = kWorldSize};
      const auto pipeline = start(sources, options(), order, grid, first_step);
      Delivery delivery;
      for (std::uint64_t step = first_step; step < kSteps; ++step) {
        ASSERT_TRUE(next(pipeline.get(), &delivery));
        EXPECT_EQ(delivery.step, step);
        const std::uint64_t begin = step * kBatchSize;
        const std::uint64_t n = std::min(kBatchSize, kRecords - begin);
        const std::vector<std::uint64_t> own(
            expected.begin() + static_cast<long>(begin + n * rank / kWorldSize),
            expected.begin() + static_cast<long>(begin + n * (rank + 1) / kWorldSize));
        EXPECT_EQ(numbers_in<std::int64_t>(delivery.parts[0]), own);
        EXPECT_EQ(delivery.n_valid, own.size());
      }
      EXPECT_FALSE(next(pipeline.get(), &delivery));
    }
  }
}

TEST_P(PipelineTest, RowsThatFillABatchAreEmptyAndComeLast) {
  const auto sources = write();
  const auto order = make_order({.kind = Shuffle::Kind::kSequential}, kRecords, 0, 0);
  const StepGrid grid{.batch_size = 7, .pad_last = true};
  for (const auto& pipeline : {start(sources, options(), 7, /*pad_last=*/true),
                               start(sources, options(), order, grid, 0)}) {
    Delivery delivery;
    for (int step = 0; step < 142; ++step) {
      ASSERT_TRUE(next(pipeline.get(), &delivery));
      EXPECT_EQ(delivery.n_valid, 7u);
      EXPECT_EQ(delivery.n_rows, 7u);
    }
    ASSERT_TRUE(next(pipeline.get(), &delivery));  // 1000 = 142 * 7 + 6
    EXPECT_EQ(delivery.n_valid, 6u);
    EXPECT_EQ(delivery.n_rows, 7u);
    EXPECT_EQ(numbers_in<std::int64_t>(delivery.parts[0]),
              (std::vector<std::uint64_t>{994, 995, 996, 997, 998, 999, 0}));
    EXPECT_FALSE(next(pipeline.get(), &delivery));
  }
}

TEST_P(PipelineTest, RanksThatGetNoRecordOfTheLastStepFillItAll) {
  const auto sources = write();
  const auto order = make_order({.kind = Shuffle::Kind::kSequential}, kRecords, 0, 0);
  // The second step has one record, which is for the last of the ranks.
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    const StepGrid grid{
        .batch_size = 999, .pad_last = true, .rank = rank, .world_size = 3};
    const auto pipeline = start(sources, options(), order, grid, 1);
    Delivery delivery;
    ASSERT_TRUE(next(pipeline.get(), &delivery));
    EXPECT_EQ(delivery.n_rows, 333u);
    EXPECT_EQ(delivery.n_valid, rank == 2 ? 1u : 0u);
    std::vector<std::uint64_t> expected(333);
    if (rank == 2) expected[0] = 999;
    EXPECT_EQ(numbers_in<std::int64_t>(delivery.parts[0]), expected);
  }
}

TEST_P(PipelineTest, RowsOfTwoSchemasComeAsTwoPartsThatSayWhereTheyStand) {
  const auto sources = write_with_two_schemas();
  const auto order = make_order({.kind = Shuffle::Kind::kShuffled}, kRecords, 1, 0);
  std::vector<std::uint64_t> expected(kRecords);
  std::iota(expected.begin(), expected.end(), std::uint64_t{0});
  order->to_records(expected);
  const StepGrid grid{.batch_size = 48, .pad_last = true};
  const auto pipeline = start(sources, options(), order, grid, 0);
  expected.resize(21 * 48);  // the rows that fill the last batch hold 0

  Delivery delivery;
  for (std::size_t begin = 0; begin < expected.size(); begin += 48) {
    ASSERT_TRUE(next(pipeline.get(), &delivery));
    ASSERT_EQ(delivery.parts.size(), 2u);
    std::vector<std::uint64_t> rows(48, kRecords);
    for (const Part& part : delivery.parts) {
      const std::vector<std::uint64_t> numbers = part.schema == 0
                                                     ? numbers_in<std::int64_t>(part)
                                                     : numbers_in<std::int32_t>(part);
      ASSERT_EQ(part.rows.size(), numbers.size());
      EXPECT_TRUE(std::is_sorted(part.rows.begin(), part.rows.end()));
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const auto row = static_cast<std::size_t>(part.rows[i]);
        EXPECT_EQ(rows.at(row), kRecords) << "a row of both parts";
        rows[row] = numbers[i];
        if (begin + row < kRecords) {
          EXPECT_EQ(part.schema, numbers[i] < 301 ? 1u : 0u);
        }
      }
    }
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(),
                           expected.begin() + static_cast<long>(begin)));
  }
  EXPECT_FALSE(next(pipeline.get(), &delivery));
}

TEST_P(PipelineTest, ABatchOfOneOfTwoSchemasIsOnePart) {
  const auto pipeline = start(write_with_two_schemas(), options(), 43);  // 301 = 7 * 43
  Delivery delivery;
  std::uint64_t n_rows = 0;
  while (next(pipeline.get(), &delivery)) {
    ASSERT_EQ(delivery.parts.size(), 1u);
    const Part& part = delivery.parts[0];
    EXPECT_EQ(part.schema, n_rows < 301 ? 1u : 0u);
    EXPECT_TRUE(part.rows.empty());
    const std::vector<std::uint64_t> numbers = part.schema == 0
                                                   ? numbers_in<std::int64_t>(part)
                                                   : numbers_in<std::int32_t>(part);
    for (const std::uint64_t number : numbers) EXPECT_EQ(number, n_rows++);
  }
  EXPECT_EQ(n_rows, kRecords);
}

INSTANTIATE_TEST_SUITE_P(Threads, PipelineTest, ::testing::Values(0u, 1u, 2u, 5u));

}  // namespace
}  // namespace fastrec
