// EncodeBatch: columns -> the Example of each row.
//
// Goal: every row equals the output of ExampleEncoder, for every form of column;
// columns
// that do not hold their rows are errors. Method: the same values as rows of features,
// over random columns of all forms and key sizes; rows far apart, and rows with missing
// features.

#include "encode/encode_batch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "encode/encode.h"

namespace fastrec {
namespace {

// A column and the memory that it views.
struct Owned {
  std::vector<std::uint8_t> memory;
  ColumnValues column;
};

using Random = std::mt19937_64;

std::uint64_t below(Random& random, std::uint64_t n) { return random() % n; }

template <typename Value>
void append(std::vector<std::uint8_t>* memory, Value value) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
  memory->insert(memory->end(), bytes, bytes + sizeof value);
}

// Integers of all sizes, also negative ones.
std::int64_t any_int(Random& random) {
  return static_cast<std::int64_t>(random() >> below(random, 64));
}

std::vector<std::int64_t> bounds(Random& random, std::size_t n, std::size_t most) {
  std::vector<std::int64_t> result = {static_cast<std::int64_t>(below(random, 3))};
  for (std::size_t i = 0; i < n; ++i) {
    result.push_back(result.back() +
                     static_cast<std::int64_t>(below(random, most + 1)));
  }
  return result;
}

Owned any_column(Random& random, std::size_t n_rows, std::string key) {
  Owned owned;
  ColumnValues& column = owned.column;
  column.key = std::move(key);
  column.kind = static_cast<FeatureKind>(1 + below(random, 3));
  column.n_values = below(random, 2) ? 1 : below(random, 5);
  if (below(random, 3) == 0) column.row_splits = bounds(random, n_rows, 4);
  const std::size_t n_values = column.row_splits.empty()
                                   ? n_rows * column.n_values
                                   : static_cast<std::size_t>(column.row_splits.back());
  std::size_t n_bytes = 0;
  if (column.kind == FeatureKind::kBytes) {
    if (below(random, 2)) {
      column.offsets = bounds(random, n_values, below(random, 2) ? 3 : 300);
      n_bytes = static_cast<std::size_t>(column.offsets.back());
    } else {
      column.string_bytes = below(random, 2) ? below(random, 4) : below(random, 400);
      n_bytes = n_values * column.string_bytes;
    }
    for (std::size_t i = 0; i < n_bytes; ++i) {
      owned.memory.push_back(static_cast<std::uint8_t>(random()));
    }
  }
  for (std::size_t i = 0; i < n_values && column.kind != FeatureKind::kBytes; ++i) {
    if (column.kind == FeatureKind::kInt64) append(&owned.memory, any_int(random));
    if (column.kind == FeatureKind::kFloat) {
      append(&owned.memory, static_cast<float>(any_int(random)));
    }
  }
  if (below(random, 4) == 0) {
    for (std::size_t i = 0; i < n_rows; ++i) {
      column.present.push_back(static_cast<std::uint8_t>(below(random, 2)));
    }
  }
  return owned;
}

// A row as features, with independent arithmetic.
std::string row_of(const std::vector<Owned>& columns, std::size_t row) {
  std::vector<std::vector<Bytes>> strings(columns.size());
  std::vector<std::vector<float>> floats(columns.size());
  std::vector<std::vector<std::int64_t>> ints(columns.size());
  std::vector<FeatureValues> features;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const ColumnValues& column = columns[c].column;
    if (!column.present.empty() && !column.present[row]) continue;
    std::size_t begin = row * column.n_values, end = begin + column.n_values;
    if (!column.row_splits.empty()) {
      begin = static_cast<std::size_t>(column.row_splits[row]);
      end = static_cast<std::size_t>(column.row_splits[row + 1]);
    }
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint8_t* memory = columns[c].memory.data();
      if (column.kind == FeatureKind::kBytes) {
        std::size_t from = i * column.string_bytes, to = from + column.string_bytes;
        if (!column.offsets.empty()) {
          from = static_cast<std::size_t>(column.offsets[i]);
          to = static_cast<std::size_t>(column.offsets[i + 1]);
        }
        strings[c].emplace_back(memory + from, to - from);
      } else if (column.kind == FeatureKind::kFloat) {
        std::memcpy(&floats[c].emplace_back(), memory + 4 * i, 4);
      } else {
        std::memcpy(&ints[c].emplace_back(), memory + 8 * i, 8);
      }
    }
    features.push_back(
        {as_bytes(column.key), column.kind, strings[c], floats[c], ints[c]});
  }
  ExampleEncoder encoder;
  std::string out(encoder.measure(features), '?');
  encoder.store(features, reinterpret_cast<std::uint8_t*>(out.data()));
  return out;
}

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
