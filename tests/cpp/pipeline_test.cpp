// The pipeline under every number of threads.
//
// Goal: the same batches in the same order, the first error in that order, and an end
// whenever it is asked for. Method: files whose records say their own number; errors
// put where later steps are done sooner.

#include "loader/pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "records.h"

namespace fastrec {
namespace {

using std::chrono::milliseconds;
using testing::entry_of;
using testing::example_of;
using testing::int64_feature;

constexpr std::uint64_t kRecords = 1000;

std::shared_ptr<const Schema> number_column() {
  auto schema = std::make_shared<Schema>();
  ColumnSpec spec;
  spec.key = "number";
  spec.kind = FeatureKind::kInt64;
  spec.item_bytes = sizeof(std::int64_t);
  schema->columns.push_back(spec);
  return schema;
}

class PipelineTest : public ::testing::TestWithParam<unsigned> {
 protected:
  // Three files of records that hold their number, but for `bad_record`, which has no
  // feature.
  std::shared_ptr<FileTable> write(std::uint64_t bad_record = kRecords) {
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
    return std::make_shared<FileTable>(std::move(paths), std::vector<Io>{Io::kAuto});
  }

  static std::unique_ptr<Pipeline> start(std::shared_ptr<FileTable> files,
                                         PipelineOptions options,
                                         std::uint64_t batch_size = 7) {
    auto claims = std::make_unique<WalkedClaims>(files, StepGrid{batch_size, false});
    return std::make_unique<Pipeline>(std::move(claims), std::move(files),
                                      number_column(),
                                      std::make_shared<BlockPool>(1 << 20), options);
  }

  // Takes batches to the end or the first exception, and checks their order.
  static std::uint64_t drain(Pipeline* pipeline) {
    std::uint64_t n_rows = 0;
    Delivery delivery;
    while (true) {
      const Pipeline::Outcome outcome = pipeline->next(milliseconds(50), &delivery);
      if (outcome == Pipeline::Outcome::kEnd) return n_rows;
      if (outcome == Pipeline::Outcome::kPending) continue;
      EXPECT_EQ(delivery.first_position, n_rows);
      const auto* numbers =
          reinterpret_cast<const std::int64_t*>(delivery.batch.columns[0].values.data);
      for (std::size_t i = 0; i < delivery.batch.n_rows; ++i) {
        EXPECT_EQ(numbers[i], static_cast<std::int64_t>(n_rows + i));
      }
      n_rows += delivery.batch.n_rows;
    }
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
    while (pipeline->next(milliseconds(50), &delivery) == Pipeline::Outcome::kPending) {
    }
    EXPECT_EQ(delivery.step, step);
  }
  for (int again = 0; again < 3; ++again) {
    try {
      while (pipeline->next(milliseconds(50), &delivery) ==
             Pipeline::Outcome::kPending) {
      }
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::kFeatureMissing);
      EXPECT_EQ(error.record, 199u);  // of the third file
    }
  }
}

TEST_P(PipelineTest, AMemoryLimitBelowOneBatchStillDelivers) {
  PipelineOptions tight = options();
  tight.memory_limit = 1;
  EXPECT_EQ(drain(start(write(), tight).get()), kRecords);
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
      while (true) {
        const auto outcome = pipeline->next(milliseconds(50), &delivery);
        if (outcome == Pipeline::Outcome::kEnd) return;
        if (outcome == Pipeline::Outcome::kPending) continue;
        n_rows += delivery.batch.n_rows;
        sum += delivery.first_position;
      }
    });
  }
  for (std::thread& consumer : consumers) consumer.join();
  EXPECT_EQ(n_rows, kRecords);
  std::uint64_t expected = 0;
  for (std::uint64_t first = 0; first < kRecords; first += 3) expected += first;
  EXPECT_EQ(sum, expected);
}

INSTANTIATE_TEST_SUITE_P(Threads, PipelineTest, ::testing::Values(0u, 1u, 2u, 5u));

}  // namespace
}  // namespace fastrec
