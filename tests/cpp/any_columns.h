// Any columns to encode, and their rows from the encoder of single rows.
//
// `random()` returns numbers of 64 bits: a random generator, or the bytes of a fuzzer.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "encode/encode.h"
#include "encode/encode_batch.h"

namespace fastrec::testing {

// A column and the memory that it views.
struct Owned {
  std::vector<std::uint8_t> memory;
  ColumnValues column;
};

template <typename Random>
std::uint64_t below(Random& random, std::uint64_t n) {
  return random() % n;
}

template <typename Value>
void append(std::vector<std::uint8_t>* memory, Value value) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
  memory->insert(memory->end(), bytes, bytes + sizeof value);
}

// Integers of all sizes, also negative ones.
template <typename Random>
std::int64_t any_int(Random& random) {
  return static_cast<std::int64_t>(random() >> below(random, 64));
}

template <typename Random>
std::vector<std::int64_t> bounds(Random& random, std::size_t n, std::size_t most) {
  std::vector<std::int64_t> result = {static_cast<std::int64_t>(below(random, 3))};
  for (std::size_t i = 0; i < n; ++i) {
    result.push_back(result.back() +
                     static_cast<std::int64_t>(below(random, most + 1)));
  }
  return result;
}

// Any column of `n_rows` rows.
template <typename Random>
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
inline std::string row_of(const std::vector<Owned>& columns, std::size_t row) {
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
  encoder.store(reinterpret_cast<std::uint8_t*>(out.data()));
  return out;
}

}  // namespace fastrec::testing
