// EncodeBatch: columns -> the Example of each row.
//
// Goal: every row equals the output of ExampleEncoder, for every form of column;
// columns that do not hold their rows are errors. Method: the same values as rows of features,
// over random columns of all forms and key sizes; rows far apart, and rows with missing
// features.

#include "encode/encode_batch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "any_columns.h"

namespace fastrec {
namespace {

using testing::any_column;
using testing::below;
using testing::Owned;
using testing::row_of;

using Random = std::mt19937_64;

TEST(EncodeBatch, EveryRowIsWhatTheEncoderOfRowsWrites) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const std::size_t n_rows = below(random, 80);
    std::vector<Owned> columns;
    const std::size_t n_columns = below(random, 8);
    for (std::size_t c = 0; c < n_columns; ++c) {
      // Short heads end between keys of 50 and 60 bytes.
      std::string key(below(random, 2) ? below(random, 10) : below(random, 200), 'k');
      columns.push_back(any_column(random, n_rows, key + std::to_string(c)));
    }
    std::vector<ColumnValues> views;
    for (Owned& owned : columns) {
      owned.column.values = owned.memory;
      views.push_back(owned.column);
    }
    const BatchEncoder encoder(views, n_rows);

    BatchEncoder::Tile tile;
    const std::size_t step = 1 + below(random, 3);
    for (std::size_t begin = 0; begin < n_rows;) {
      encoder.load(begin, n_rows, step, &tile);
      ASSERT_GT(tile.n_rows(), 0u);
      for (std::size_t i = 0; i < tile.n_rows(); ++i, begin += step) {
        const std::size_t size = encoder.measure(i, &tile);
        std::string out(size + BatchEncoder::kSlackBytes, '?');
        encoder.store(i, tile, reinterpret_cast<std::uint8_t*>(out.data()));
        out.resize(size);
        ASSERT_EQ(out, row_of(columns, begin)) << "seed " << seed << " row " << begin;
      }
    }
  }
}

TEST(EncodeBatch, OtherValuesOfTheSameColumns) {
  const std::vector<std::int64_t> first = {1, 2, 3}, other = {300, -1};
  const auto bytes = [](const std::vector<std::int64_t>& values) {
    return Bytes(reinterpret_cast<const std::uint8_t*>(values.data()),
                 values.size() * 8);
  };
  ColumnValues column;
  column.key = "f";
  column.values = bytes(first);
  const BatchEncoder encoder({column}, 3);
  const Bytes values[] = {bytes(other)};
  const BatchEncoder same = encoder.with_values(values, 2);
  column.values = bytes(other);
  const BatchEncoder expected({column}, 2);
  EXPECT_EQ(same.n_rows(), 2u);
  const auto row = [](const BatchEncoder& from, std::size_t i) {
    BatchEncoder::Tile tile;
    from.load(i, i + 1, 1, &tile);
    const std::size_t size = from.measure(0, &tile);
    std::string out(size + BatchEncoder::kSlackBytes, '?');
    from.store(0, tile, reinterpret_cast<std::uint8_t*>(out.data()));
    return out.substr(0, size);
  };
  EXPECT_EQ(row(same, 0), row(expected, 0));
  EXPECT_EQ(row(same, 1), row(expected, 1));
  EXPECT_THROW((void)encoder.with_values(values, 3), std::invalid_argument);
}

TEST(EncodeBatch, ValuesThatChangeMeanwhileChangeNoSizes) {
  std::vector<std::int64_t> one(4, 1), lists(8, 1);
  const auto bytes = [](const std::vector<std::int64_t>& values) {
    return Bytes(reinterpret_cast<const std::uint8_t*>(values.data()),
                 values.size() * 8);
  };
  std::vector<ColumnValues> columns(2);
  columns[0].values = bytes(one);
  columns[1].key = "lists";
  columns[1].values = bytes(lists);
  columns[1].n_values = 2;
  const BatchEncoder encoder(columns, 4);
  BatchEncoder::Tile tile;
  encoder.load(0, 4, 1, &tile);
  const std::size_t size = encoder.measure(0, &tile);
  const auto stored = [&] {
    std::string out(size + BatchEncoder::kSlackBytes, '?');
    encoder.store(0, tile, reinterpret_cast<std::uint8_t*>(out.data()));
    return out.substr(0, size);
  };
  const std::string before = stored();
  one.assign(4, -1);
  lists.assign(8, -1);
  EXPECT_EQ(stored(), before);
}

TEST(EncodeBatch, ColumnsThatDoNotHoldTheirRowsAreRefused) {
  const std::vector<std::uint8_t> memory(64);
  const auto refused = [&](const auto& change) {
    ColumnValues column;
    column.key = "f";
    column.values = memory;
    change(&column);
    EXPECT_THROW(BatchEncoder({column}, 4), std::invalid_argument);
  };
  refused([](ColumnValues* c) { c->kind = FeatureKind::kNone; });
  refused([](ColumnValues* c) { c->n_values = 3; });
  refused([](ColumnValues* c) { c->n_values = SIZE_MAX; });
  refused([](ColumnValues* c) { c->row_splits = {0, 1}; });
  refused([](ColumnValues* c) { c->row_splits = {0, 1, 2, 3, 9}; });
  refused([](ColumnValues* c) { c->row_splits = {0, 1, 2, 1, 2}; });
  refused([](ColumnValues* c) { c->row_splits = {-1, 0, 1, 2, 3}; });
  refused([](ColumnValues* c) { c->present = {1, 1, 1}; });
  refused([](ColumnValues* c) {
    c->kind = FeatureKind::kBytes;
    c->string_bytes = 17;
  });
  refused([](ColumnValues* c) {
    c->kind = FeatureKind::kBytes;
    c->offsets = {0, 1, 2, 3};
  });
  refused([](ColumnValues* c) {
    c->kind = FeatureKind::kBytes;
    c->offsets = {0, 1, 2, 3, 65};
  });
  refused([](ColumnValues* c) {
    c->kind = FeatureKind::kBytes;
    c->offsets = {0, 3, 2, 3, 4};
  });
}

}  // namespace
}  // namespace fastrec
