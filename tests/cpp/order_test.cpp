// Orders, grids and catalogs: the arithmetic from step to place.
//
// Goal: every order is a bijection that does not depend on which positions are looked
// up
// together; numbers near 2^63 do not overflow; records that do not exist are errors.
// Method: small cases completely, against counting; large ones at their edges.
// tests/loader/test_order.py tests the orders and their quality.

#include "loader/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "batch/column.h"
#include "loader/mixed_order.h"
#include "loader/permutation.h"
#include "loader/step_grid.h"
#include "places.h"
#include "record/catalog.h"
#include "records.h"

namespace fastrec {
namespace {

using Numbers = std::vector<std::uint64_t>;

Numbers up_to(std::uint64_t n) {
  Numbers numbers(n);
  std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
  return numbers;
}

void expect_bijection(Numbers numbers) {
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(numbers, up_to(numbers.size()));
}

// ---- Random numbers

TEST(Random, SplitMix64GivesItsPublishedNumbers) {
  // The first outputs for the seed 1234567 of Sebastiano Vigna's splitmix64.c.
  KeyStream keys(1234567);
  for (const std::uint64_t expected :
       {6457827717110365317ull, 3203168211198807973ull, 9817491932198370423ull,
        4593380528125082431ull, 16408922859458223821ull}) {
    EXPECT_EQ(keys.next(), expected);
  }
}

TEST(Random, NumbersBelowABoundAreBelowItAndReachAllOfIt) {
  KeyStream keys(7);
  for (const std::uint64_t n : {1ull, 2ull, 3ull, 10ull, 64ull, 100ull}) {
    Numbers counts(n);
    for (std::uint64_t i = 0; i < 1000 * n; ++i) ++counts.at(keys.below(n));
    for (const std::uint64_t count : counts) {
      EXPECT_GT(count, 800u);
      EXPECT_LT(count, 1200u);
    }
  }
  // If a bound does not divide 2^64, up to half of the draws are rejected. The thirds
  // of
  // such a bound must be equally likely.
  const std::uint64_t n = (1ull << 63) + 1;
  Numbers thirds(3);
  for (int i = 0; i < 30'000; ++i) {
    const std::uint64_t x = keys.below(n);
    ASSERT_LT(x, n);
    ++thirds[std::min<std::uint64_t>(x / (n / 3), 2)];
  }
  for (const std::uint64_t count : thirds) {
    EXPECT_GT(count, 9'500u);
    EXPECT_LT(count, 10'500u);
  }
}

TEST(Random, KeysTellSeedsEpochsAndStreamsApart) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
      for (std::uint64_t stream = 0; stream < 20; ++stream) {
        keys.insert(key_of(seed, epoch, stream));
      }
    }
  }
  EXPECT_EQ(keys.size(), 20u * 20 * 20);
}

// ---- Permutation

TEST(Permutation, IsABijectionOfAnySize) {
  for (const std::uint64_t n :
       {0u, 1u, 2u, 3u, 64u, 1000u, 4095u, 4096u, 4097u, 4098u, 4160u, 4161u, 4224u,
        4225u, 4226u, 5003u, 8191u, 65536u, 65537u}) {
    for (const std::uint64_t key : {0ull, 1ull, ~0ull}) {
      const Permutation permutation(n, key);
      EXPECT_EQ(permutation.size(), n);
      Numbers images = up_to(n);
      permutation.apply(images);
      expect_bijection(std::move(images));
    }
  }
}

TEST(Permutation, AnImageDoesNotDependOnItsNeighbours) {
  for (const std::uint64_t n : {100ull, 4096ull, 4097ull, 100'003ull, 1ull << 40,
                                (1ull << 63) - 1, 1ull << 63}) {
    const Permutation permutation(n, 42);
    std::mt19937_64 random(n);
    Numbers numbers = {0, n - 1, n / 2};
    while (numbers.size() < 64) numbers.push_back(random() % n);
    for (std::size_t size = 0; size <= numbers.size(); ++size) {
      Numbers images(numbers.begin(), numbers.begin() + static_cast<long>(size));
      permutation.apply(images);
      for (std::size_t i = 0; i < size; ++i) {
        ASSERT_LT(images[i], n);
        ASSERT_EQ(images[i], permutation(numbers[i])) << n << ": " << numbers[i];
      }
    }
  }
}

TEST(Permutation, LargeOnesMeetNoImageTwice) {
  for (const std::uint64_t n :
       {(1ull << 62) - 1, 1ull << 62, (1ull << 62) + 1, (1ull << 63) - 1, 1ull << 63}) {
    const Permutation permutation(n, n);
    // The ends, and cells of neighbouring rows and columns.
    std::set<std::uint64_t> numbers;
    const auto side = std::uint64_t{1} << 31;
    for (std::uint64_t i = 0; i < 200; ++i) {
      for (const std::uint64_t number :
           {i, n - 1 - i, n / 2 + i, n / 3 + i * side, n / 3 + i * (side + 1)}) {
        numbers.insert(number);
      }
    }
    std::set<std::uint64_t> images;
    for (const std::uint64_t number : numbers) {
      images.insert(permutation(number));
      ASSERT_LT(*images.rbegin(), n);
    }
    EXPECT_EQ(images.size(), numbers.size());
  }
}

// ---- Orders

TEST(Order, EveryKindIsABijectionForAnySubsetOfPositions) {
  const std::vector<Shuffle> shuffles = {
      {.kind = Shuffle::Kind::kSequential},
      {.kind = Shuffle::Kind::kShuffled},
      {.kind = Shuffle::Kind::kBlocks, .block_records = 1, .n_lanes = 1},
      {.kind = Shuffle::Kind::kBlocks, .block_records = 7, .n_lanes = 3},
      {.kind = Shuffle::Kind::kBlocks, .block_records = 10'000, .n_lanes = 64}};
  for (const Shuffle& shuffle : shuffles) {
    for (const std::uint64_t n : {0u, 1u, 2u, 63u, 64u, 65u, 1000u, 5000u}) {
      const auto order = make_order(shuffle, n, 3, 1);
      EXPECT_EQ(order->size(), n);
      Numbers records = up_to(n);
      order->to_records(records);
      for (std::uint64_t position = n; position-- > 0;) {
        std::uint64_t one = position;
        order->to_records({&one, 1});
        ASSERT_EQ(one, records[position]);
      }
      expect_bijection(std::move(records));
    }
  }
}

TEST(Order, AListIsWhatItSays) {
  const ListedOrder order({5, 5, 0, 9});
  EXPECT_EQ(order.size(), 4u);
  Numbers positions = {3, 0, 1, 2, 3};
  order.to_records(positions);
  EXPECT_EQ(positions, (Numbers{9, 5, 5, 0, 9}));
}

TEST(Order, BlocksAnnounceEachRecordBeforeItIsRead) {
  constexpr std::uint64_t kLanes = 8;
  for (const std::uint64_t n_records : Numbers{10'007, 10'400, 10'399, 7, 8}) {
    const BlockOrder order(n_records, /*key=*/9, /*block_records=*/100, kLanes);
    Numbers announced(n_records);
    std::uint64_t n_announced = 0;
    for (std::uint64_t position = 0; position < n_records; ++position) {
      std::vector<RecordRange> ranges;
      order.upcoming({&position, 1}, &ranges);
      for (const RecordRange& range : ranges) {
        n_announced += range.count;
        for (std::uint64_t i = 0; i < range.count; ++i) ++announced[range.first + i];
      }
      std::uint64_t record = position;
      order.to_records({&record, 1});
      ASSERT_GT(announced[record], 0u) << position << " of " << n_records;
    }
    // The records of surplus cells, at most one per block, are announced twice.
    EXPECT_LE(n_announced, n_records + n_records / 100 + kLanes);
  }
}

// The surplus cells of few records may form a cycle that no position leads to.
TEST(Order, BlocksOfFewRecordsAnnounceOnlyRecords) {
  for (std::uint64_t n_records = 1; n_records <= 100; ++n_records) {
    for (std::uint64_t key = 0; key < 20; ++key) {
      const BlockOrder order(n_records, key, 5, 2);
      std::vector<RecordRange> ranges;
      order.upcoming(up_to(n_records), &ranges);
      for (const RecordRange& range : ranges) {
        EXPECT_LE(range.first + range.count, n_records);
      }
    }
  }
}

TEST(Order, AMixKeepsToItsWeightsWhereverItIsAsked) {
  const Shuffle shuffled{.kind = Shuffle::Kind::kShuffled};
  const auto mix = [&](std::uint64_t epoch) {
    return MixedOrder({{100, 3, shuffled}, {1, 1, shuffled}, {5000, 4, shuffled}},
                      /*length=*/800, /*run=*/1, /*draw_seed=*/2, /*seed=*/3, epoch);
  };
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
    const MixedOrder order = mix(epoch);
    Numbers records = up_to(800), counts(3);
    order.to_records(records);
    for (std::uint64_t position = 800; position-- > 0;) {
      std::uint64_t one = position;
      order.to_records({&one, 1});
      ASSERT_EQ(one, records[position]);
      ++counts[one < 100 ? 0 : one < 101 ? 1 : 2];
    }
    EXPECT_NEAR(static_cast<double>(counts[0]), 300, 2);
    EXPECT_NEAR(static_cast<double>(counts[1]), 100, 2);
    EXPECT_NEAR(static_cast<double>(counts[2]), 400, 2);
  }
}

// ---- StepGrid

TEST(StepGrid, RanksShareEveryStepOfLargeGrids) {
  constexpr std::uint64_t kMany = (1ull << 62) + 12'345;
  for (const std::uint64_t batch_size :
       Numbers{1, 1000, 1ull << 40, kMany, 1ull << 63}) {
    for (const std::uint64_t phase : {std::uint64_t{0}, batch_size / 3}) {
      StepGrid grid{.n_positions = kMany, .batch_size = batch_size, .phase = phase};
      if (phase > kMany) continue;
      const std::uint64_t n_steps = grid.n_steps();
      const PositionRange last = grid.range(n_steps - 1);
      EXPECT_EQ(last.first + last.count, kMany);
      for (const std::uint64_t step : {std::uint64_t{0}, n_steps / 2, n_steps - 1}) {
        EXPECT_EQ(grid.step_at(grid.range(step).first), step);
      }
    }
  }
}

TEST(StepGrid, SlicesOfRanksAreOneStepSortedByLane) {
  for (const std::uint64_t n_lanes : {1u, 3u, 8u}) {
    for (const std::uint64_t world_size : {1u, 2u, 5u}) {
      StepGrid grid{.n_positions = 100,
                    .batch_size = 12,
                    .phase = 5,
                    .world_size = world_size,
                    .n_lanes = n_lanes};
      Numbers all;
      for (std::uint64_t step = 0; step < grid.n_steps(); ++step) {
        Numbers of_step;
        for (grid.rank = 0; grid.rank < world_size; ++grid.rank) {
          grid.positions(step, &of_step);
        }
        EXPECT_TRUE(std::is_sorted(
            of_step.begin(), of_step.end(), [&](std::uint64_t a, std::uint64_t b) {
              return std::pair(a % n_lanes, a) < std::pair(b % n_lanes, b);
            }));
        all.insert(all.end(), of_step.begin(), of_step.end());
      }
      expect_bijection(std::move(all));
    }
  }
}

// ---- Catalog

class CatalogTest : public ::testing::Test {
 protected:
  // Four files of 3, 0, 1 and 6 records.
  std::vector<Index> indexes() const {
    std::vector<Index> result;
    for (const std::uint64_t n : {3u, 0u, 1u, 6u}) {
      Numbers offsets = {0};
      for (std::uint64_t i = 0; i < n; ++i) {
        offsets.push_back(offsets.back() + kFrameBytes + i);
      }
      const FileIdentity identity{offsets.back(), 0};
      result.push_back(Index::from_offsets(std::move(offsets), identity, "made up"));
    }
    return result;
  }

  // The records of a catalog of `pieces`.
  Numbers chosen(std::vector<Piece> pieces) const {
    const Catalog all(indexes()), catalog(indexes(), std::move(pieces));
    Numbers result;
    for (std::uint64_t i = 0; i < catalog.size(); ++i) {
      const Place place = catalog.locate(i);
      std::uint64_t number = 0;
      while (all.locate(number).file != place.file ||
             all.locate(number).record != place.record) {
        ++number;
      }
      EXPECT_EQ(all.locate(number).frame.offset, place.frame.offset);
      result.push_back(number);
    }
    return result;
  }

  static Piece table_of(Numbers numbers) {
    const std::uint64_t count = numbers.size();
    return {.count = count,
            .table = std::make_shared<const Numbers>(std::move(numbers))};
  }
};

TEST_F(CatalogTest, NumbersRecordsThroughAllFiles) {
  const Catalog catalog(indexes());
  EXPECT_EQ(catalog.size(), 10u);
  FrameRuns frames;
  catalog.locate(Numbers{0, 2, 3, 4, 9, 0}, &frames);
  const std::vector<Place> places = testing::places_of(frames);
  std::vector<std::pair<std::size_t, std::uint64_t>> found;
  for (const Place& place : places) found.emplace_back(place.file, place.record);
  EXPECT_EQ(found, (decltype(found){{0, 0}, {0, 2}, {2, 0}, {3, 0}, {3, 5}, {0, 0}}));
  EXPECT_EQ(places[4].frame.offset, 5 * kFrameBytes + 10);
  EXPECT_EQ(places[4].frame.length, 5u);
}

TEST_F(CatalogTest, PiecesGoForwardsBackwardsAndAsTheyAreListed) {
  EXPECT_EQ(chosen({}), up_to(10));
  EXPECT_EQ(chosen({{.count = 0}}), Numbers{});
  EXPECT_EQ(chosen({{.count = 3, .first = 1, .stride = 4}}), (Numbers{1, 5, 9}));
  EXPECT_EQ(chosen({{.count = 10, .first = 9, .stride = ~0ull}}),
            (Numbers{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(chosen({{.count = 4, .first = 9, .stride = 0 - 3ull}}),
            (Numbers{9, 6, 3, 0}));
  EXPECT_EQ(chosen({{.count = 3, .first = 4, .stride = 0}}), (Numbers{4, 4, 4}));
  EXPECT_EQ(chosen({table_of({7, 7, 0}),
                    {.count = 0, .first = 99},
                    {.count = 2, .first = 8},
                    table_of({}),
                    {.count = 1, .first = 3}}),
            (Numbers{7, 7, 0, 8, 9, 3}));
}

TEST_F(CatalogTest, PiecesThatNameNoRecordAreRefused) {
  const std::vector<Piece> wrong = {
      table_of({0, 10}),
      table_of({~0ull}),
      {.count = 1, .first = 10},
      {.count = 11, .first = 0},
      {.count = 5, .first = 3, .stride = ~0ull},       // 3, 2, 1, 0, -1
      {.count = 4, .first = 8, .stride = 0 - 3ull},    // 8, 5, 2, -1
      {.count = 3, .first = 0, .stride = 1ull << 63},  // 0, 2^63, 0
      {.count = 1ull << 63, .first = 0, .stride = 2},  // round to 2^64 - 2
      {.count = 5, .first = 1, .stride = 1ull << 62},  // round to 1
      {.count = (1ull << 32) + 1, .stride = 1ull << 32},
      {.count = ~0ull, .first = 9, .stride = ~0ull}};
  for (const Piece& piece : wrong) {
    EXPECT_THROW(Catalog(indexes(), {piece}), std::out_of_range)
        << piece.count << " from " << piece.first << " by " << piece.stride;
    EXPECT_THROW(Catalog(indexes(), {{.count = 1}, piece}), std::out_of_range);
  }
  EXPECT_THROW(Catalog(std::vector<Index>(), {{.count = 1}}), std::out_of_range);
  EXPECT_EQ(Catalog(std::vector<Index>()).size(), 0u);
}

TEST_F(CatalogTest, ARecordMayHaveAnyNumberOfRows) {
  // Records 0, 3 and 9 have rows: 0 to 2, 3, and 4 to 5.
  const std::vector<std::uint64_t> row_ends = {3, 3, 3, 4, 4, 4, 4, 4, 4, 6};
  const Catalog catalog(indexes(), {}, row_ends);
  EXPECT_EQ(catalog.size(), 6u);
  EXPECT_EQ(catalog.locate(2).frame.offset, Catalog(indexes()).locate(0).frame.offset);
  EXPECT_EQ(catalog.locate(4).frame.offset, Catalog(indexes()).locate(9).frame.offset);

  FrameRuns frames, expected;
  std::vector<RowRange> rows;
  const Catalog chosen(indexes(), {table_of({5, 2, 0, 4, 2})}, row_ends);
  chosen.locate_records(Numbers{0, 1, 2, 3, 4}, &frames, &rows);
  Catalog(indexes()).locate(Numbers{0, 9}, &expected);
  EXPECT_EQ(frames.lengths, expected.lengths);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].first, 0u);
  EXPECT_EQ(rows[0].last, 2u);
  EXPECT_EQ(rows[1].first, 0u);
  EXPECT_EQ(rows[1].last, 1u);

  EXPECT_THROW(Catalog(indexes(), {}, {1, 2}), std::out_of_range);
  EXPECT_THROW(Catalog(indexes(), {table_of({6})}, row_ends), std::out_of_range);
}

// ---- Empty rows

TEST(BatchBuilder, AnEmptyRowIsZerosOrNothingInEveryLayout) {
  const auto column = [](FeatureKind kind, Layout layout, DType dtype,
                         std::size_t item_bytes, std::size_t n_values) {
    ColumnSpec spec;
    spec.key = "x";
    spec.kind = kind;
    spec.layout = layout;
    spec.dtype = dtype;
    spec.item_bytes = item_bytes;
    spec.n_values = n_values;
    return spec;
  };
  auto schema = std::make_shared<Schema>();
  schema->columns = {
      column(FeatureKind::kInt64, Layout::kDense, DType::kInt64, 8, 3),
      column(FeatureKind::kBytes, Layout::kRaw, DType::kOpaque, 1, 5),
      column(FeatureKind::kBytes, Layout::kDense, DType::kBytes, 0, 2),
      column(FeatureKind::kInt64, Layout::kRagged, DType::kInt64, 8, 1),
      column(FeatureKind::kBytes, Layout::kRagged, DType::kBytes, 0, 1),
  };
  const auto pool = std::make_shared<BlockPool>(std::size_t{1} << 20);
  {  // Dirty memory of an earlier batch.
    const auto block = pool->take(1 << 16);
    std::fill(block->data(), block->data() + block->size(), std::uint8_t{0xff});
  }
  BatchBuilder builder(schema, pool);
  builder.begin(3);
  builder.fill_empty(0);
  std::fill_n(builder.row(0, 1), 24, std::uint8_t{0x11});
  std::fill_n(builder.row(1, 1), 5, std::uint8_t{0x22});
  for (const char* string : {"ab", "c"}) builder.append_string(2, as_bytes(string));
  std::fill_n(builder.extend(3, 8), 8, std::uint8_t{0x33});
  builder.end_ragged_row(3, 1);
  builder.append_string(4, as_bytes("def"));
  builder.end_ragged_row(4, 1);
  builder.fill_empty(2);
  const Batch batch = builder.finish(3);

  const auto bytes = [](const Column::Array& array, std::size_t n) {
    return std::string(reinterpret_cast<const char*>(array.data), n);
  };
  const auto int64s = [](const Column::Array& array, std::size_t n) {
    const auto* values = reinterpret_cast<const std::int64_t*>(array.data);
    return std::vector<std::int64_t>(values, values + n);
  };
  using Int64s = std::vector<std::int64_t>;
  const std::vector<Column>& columns = batch.columns;
  EXPECT_EQ(bytes(columns[0].values, 72),
            std::string(24, '\0') + std::string(24, '\x11') + std::string(24, '\0'));
  EXPECT_EQ(bytes(columns[1].values, 15),
            std::string(5, '\0') + std::string(5, '\x22') + std::string(5, '\0'));
  EXPECT_EQ(columns[2].n_values, 6u);
  EXPECT_EQ(int64s(columns[2].offsets, 7), (Int64s{0, 0, 0, 2, 3, 3, 3}));
  EXPECT_EQ(int64s(columns[3].row_splits, 4), (Int64s{0, 0, 1, 1}));
  EXPECT_EQ(columns[3].n_values, 1u);
  EXPECT_EQ(int64s(columns[4].row_splits, 4), (Int64s{0, 0, 1, 1}));
  EXPECT_EQ(int64s(columns[4].offsets, 2), (Int64s{0, 3}));
}

}  // namespace
}  // namespace fastrec
