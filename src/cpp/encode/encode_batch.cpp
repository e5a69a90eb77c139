#include "encode/encode_batch.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/prefetch.h"
#include "base/word.h"
#include "batch/growing_array.h"
#include "record/framing.h"
#include "wire/entry.h"
#include "wire/pack.h"

namespace fastrec {
namespace {

constexpr std::size_t kNumberBytes[] = {0, 0, sizeof(float), sizeof(std::int64_t)};

std::size_t number_bytes(FeatureKind kind) {
  return kNumberBytes[static_cast<std::size_t>(kind)];
}

// Prefetches the numbers of the next rows: the CPU tracks fewer streams than a batch
// has columns.
void prefetch_rows(const ColumnValues& column, std::size_t begin, std::size_t n) {
  constexpr std::size_t kMaxBytes = 8 * kCacheLineBytes;
  const std::size_t item_bytes = number_bytes(column.kind);
  const std::size_t end = std::min(column.values.size(), (begin + n) * item_bytes);
  std::size_t at = begin * item_bytes;
  if (at < end && end - at > kMaxBytes) return;  // the rows are far apart
  for (; at < end; at += kCacheLineBytes) prefetch(column.values.data() + at);
}

Bytes string_at(const ColumnValues& column, std::size_t i) noexcept {
  if (column.offsets.empty()) {
    return column.values.subspan(i * column.string_bytes, column.string_bytes);
  }
  const auto begin = static_cast<std::size_t>(column.offsets[i]);
  return column.values.subspan(begin,
                               static_cast<std::size_t>(column.offsets[i + 1]) - begin);
}

bool has_feature(const ColumnValues& column, std::size_t row) noexcept {
  return column.present.empty() || column.present[row] != 0;
}

// The values of a row.
Run run_of(const ColumnValues& column, std::size_t row) noexcept {
  if (column.row_splits.empty()) return {row * column.n_values, column.n_values};
  const std::int64_t begin = column.row_splits[row];
  return {static_cast<std::size_t>(begin),
          static_cast<std::size_t>(column.row_splits[row + 1] - begin)};
}

void check_ascending(const std::vector<std::int64_t>& bounds, std::size_t size,
                     const std::string& what) {
  if (bounds.front() < 0 || !std::is_sorted(bounds.begin(), bounds.end()) ||
      static_cast<std::uint64_t>(bounds.back()) > size) {
    throw std::invalid_argument(what + " must ascend from 0 or more to at most " +
                                std::to_string(size));
  }
}

}  // namespace

BatchEncoder::BatchEncoder(std::vector<ColumnValues> columns, std::size_t n_rows)
    : columns_(std::move(columns)), n_rows_(n_rows) {
  for (const ColumnValues& column : columns_) {
    check(column);
    entries_.push_back(entry_of(column));
    n_numbers_ += entries_.back().form == Entry::Form::kNumber;
    number_heads_ += entries_.back().head_size;
  }
}

BatchEncoder BatchEncoder::with_values(std::span<const Bytes> values,
                                       std::size_t n_rows) const {
  BatchEncoder other = *this;
  other.n_rows_ = n_rows;
  for (std::size_t c = 0; c < values.size(); ++c) {
    other.columns_[c].values = values[c];
    other.check(other.columns_[c]);
  }
  return other;
}

void BatchEncoder::check(const ColumnValues& column) const {
  const auto name = [&] { return "column '" + column.key + "'"; };
  const auto fail = [&](const char* what) {
    throw std::invalid_argument(name() + what);
  };
  if (column.kind == FeatureKind::kNone) fail(" has no kind");
  if (!column.present.empty() && column.present.size() != n_rows_) {
    fail(": `present` must have one flag per row");
  }

  std::size_t n_values = 0;
  if (column.kind != FeatureKind::kBytes) {
    n_values = column.values.size() / number_bytes(column.kind);
  } else if (!column.offsets.empty()) {
    check_ascending(column.offsets, column.values.size(), name() + ": offsets");
    n_values = column.offsets.size() - 1;
  } else if (column.string_bytes != 0) {
    n_values = column.values.size() / column.string_bytes;
  } else {
    n_values = SIZE_MAX;  // any number of empty strings
  }
  if (!column.row_splits.empty()) {
    if (column.row_splits.size() != n_rows_ + 1)
      fail(": row_splits must have one entry more than rows");
    check_ascending(column.row_splits, n_values, name() + ": row_splits");
  } else if (column.n_values != 0 && n_values / column.n_values < n_rows_) {
    fail(" has too few values");
  }
}

BatchEncoder::Entry BatchEncoder::entry_of(const ColumnValues& column) {
  Entry entry;
  const bool is_float = column.kind == FeatureKind::kFloat;
  const bool is_int = column.kind == FeatureKind::kInt64;
  const bool is_one = column.n_values == 1;
  if (!column.row_splits.empty() || !column.offsets.empty()) return entry;
  if (!is_one && !(is_float && column.n_values > 0)) return entry;

  EntryHeader header = entry_header(as_bytes(column.key), column.kind, 0);
  if (is_one && (is_int || is_float) && header.bytes.size() <= Entry::kShortBytes) {
    entry.form = Entry::Form::kNumber;
    entry.head_size = static_cast<std::uint8_t>(header.bytes.size());
    std::ranges::copy(header.bytes, entry.head.begin());
    for (const std::size_t at : header.lengths) entry.lengths[at] = 0xff;
  } else if (!is_int) {
    entry.form = Entry::Form::kConstant;
    entry.value_bytes =
        is_float ? column.n_values * sizeof(float) : column.string_bytes;
    header = entry_header(as_bytes(column.key), column.kind, entry.value_bytes);
    entry.long_head = std::move(header.bytes);
  }
  return entry;
}

std::uint64_t BatchEncoder::row_bytes() const {
  constexpr std::size_t kMeasuredRows = 16;
  Tile tile;
  load(0, n_rows_, std::max<std::size_t>(1, n_rows_ / kMeasuredRows), &tile);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < tile.n_rows(); ++i) total += measure(i, &tile);
  return total / std::max<std::size_t>(1, tile.n_rows());
}

void BatchEncoder::load(std::size_t begin, std::size_t end, std::size_t step,
                        Tile* tile) const {
  const std::size_t n =
      begin < end ? std::min(Tile::kMaxRows, (end - begin - 1) / step + 1) : 0;
  tile->begin_ = begin;
  tile->step_ = step;
  tile->n_rows_ = n;
  tile->number_bytes_.fill(number_heads_);
  tile->words_.resize(n_numbers_ * Tile::kMaxRows);
  tile->word_sizes_.resize(n_numbers_ * Tile::kMaxRows);
  tile->sizes_.resize(columns_.size());
  std::uint64_t* words = tile->words_.data();
  std::uint8_t* sizes = tile->word_sizes_.data();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (entries_[c].form != Entry::Form::kNumber) continue;
    prefetch_rows(columns_[c], begin + n * step, n * step);
    load_numbers(columns_[c], words, sizes, tile);
    for (std::size_t i = 0; i < n; ++i) tile->number_bytes_[i] += sizes[i];
    if (const auto& present = columns_[c].present; !present.empty()) {
      for (std::size_t i = 0; i < n; ++i) {
        if (present[tile->row(i)] != 0) continue;
        tile->number_bytes_[i] -= entries_[c].head_size + std::uint32_t{sizes[i]};
        sizes[i] = 0;
      }
    }
    words += Tile::kMaxRows;
    sizes += Tile::kMaxRows;
  }
}

void BatchEncoder::load_numbers(const ColumnValues& column, std::uint64_t* words,
                                std::uint8_t* sizes, Tile* tile) {
  const std::size_t n = tile->n_rows_;
  const std::size_t item_bytes = number_bytes(column.kind);
  const std::uint8_t* values = column.values.data() + tile->begin_ * item_bytes;
  std::array<std::uint8_t, Tile::kMaxRows * sizeof(std::uint64_t)> gathered;
  if (tile->step_ != 1) {
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(&gathered[i * item_bytes], values + i * tile->step_ * item_bytes,
                  item_bytes);
    }
    values = gathered.data();
  }
  if (column.kind == FeatureKind::kInt64) {
    pack_kernel().spread(values, n, words, sizes);
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    words[i] = load_le<std::uint32_t>(values + i * sizeof(float));
  }
  std::fill_n(sizes, n, std::uint8_t{sizeof(float)});
}

std::uint64_t BatchEncoder::measure(std::size_t i, Tile* tile) const {
  std::uint64_t total = tile->number_bytes_[i];
  if (n_numbers_ < columns_.size()) total += measure_variable(tile->row(i), tile);
  tile->features_bytes_ = total;
  const std::uint64_t size = field_size(total);
  if (size > kMaxPayloadBytes) {
    throw std::length_error(
        "row " + std::to_string(tile->row(i)) + ": an example must have at most " +
        std::to_string(kMaxPayloadBytes) + " bytes, the limit of protobuf, got " +
        std::to_string(size));
  }
  return size;
}

std::uint64_t BatchEncoder::measure_variable(std::size_t row, Tile* tile) const {
  tile->varint_bytes_ = 0;
  std::uint64_t total = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const ColumnValues& column = columns_[c];
    const Entry& entry = entries_[c];
    if (entry.form == Entry::Form::kNumber || !has_feature(column, row)) continue;
    if (entry.form == Entry::Form::kConstant) {
      total += entry.long_head.size() + entry.value_bytes;
      continue;
    }
    tile->sizes_[c] = measure_values(column, row, tile);
    total += field_size(
        entry_size(column.key.size(), feature_size(column.kind, tile->sizes_[c])));
  }
  return total;
}

std::uint64_t BatchEncoder::measure_values(const ColumnValues& column, std::size_t row,
                                           Tile* tile) {
  const Run run = run_of(column, row);
  std::uint64_t size = 0;
  switch (column.kind) {
    case FeatureKind::kInt64: {
      // Packing is the only way to learn the size, so keep the result.
      const std::size_t room = tile->varint_bytes_ + pack_room(run.size);
      if (tile->varints_.size() < room) tile->varints_.resize(2 * room);
      std::uint8_t* const varints = tile->varints_.data() + tile->varint_bytes_;
      const std::uint8_t* end = pack_kernel().pack(
          column.values.data() + run.begin * sizeof(std::int64_t), run.size, varints);
      size = static_cast<std::uint64_t>(end - varints);
      tile->varint_bytes_ += size;
      break;
    }
    case FeatureKind::kFloat:
      size = run.size * sizeof(float);
      break;
    default:
      for (std::size_t i = 0; i < run.size; ++i) {
        size += field_size(string_at(column, run.begin + i).size());
      }
      break;
  }
  return size;
}

void BatchEncoder::store(std::size_t i, const Tile& tile,
                         std::uint8_t* out) const noexcept {
  const std::size_t row = tile.row(i);
  out = open_field(1, tile.features_bytes_, out);
  const std::uint64_t* const words = tile.words_.data();
  const std::uint8_t* const sizes = tile.word_sizes_.data();
  std::size_t number = i;  // index in both
  const std::uint8_t* varints = tile.varints_.data();
  // Copies, because the compiler assumes that stores to `out` may alias the members.
  const std::size_t n_columns = columns_.size();
  const Entry* const entries = entries_.data();
  for (std::size_t c = 0; c < n_columns; ++c) {
    const Entry& entry = entries[c];
    if (entry.form == Entry::Form::kNumber) {
      if (sizes[number] != 0) {
        out = store_number(entry, words[number], sizes[number], out);
      }
      number += Tile::kMaxRows;
      continue;
    }
    const ColumnValues& column = columns_[c];
    if (!has_feature(column, row)) continue;
    if (entry.form == Entry::Form::kConstant) {
      out = store_raw(entry.long_head.data(), entry.long_head.size(), out);
      out = store_raw(column.values.data() + row * entry.value_bytes, entry.value_bytes,
                      out);
      continue;
    }
    const Run run = run_of(column, row);
    const std::uint64_t n_bytes = tile.sizes_[c];
    out = open_entry(as_bytes(column.key), feature_size(column.kind, n_bytes), out);
    out = open_feature(column.kind, n_bytes, out);
    if (column.kind == FeatureKind::kInt64) {
      out = store_raw(varints, n_bytes, out);
      varints += n_bytes;
    } else if (column.kind == FeatureKind::kFloat) {
      out = store_raw(column.values.data() + run.begin * sizeof(float), n_bytes, out);
    } else {
      for (std::size_t k = 0; k < run.size; ++k) {
        out = store_string(1, string_at(column, run.begin + k), out);
      }
    }
  }
}

inline std::uint8_t* BatchEncoder::store_number(const Entry& entry, std::uint64_t word,
                                                std::size_t size,
                                                std::uint8_t* out) noexcept {
  // Storing whole words is faster than storing the exact size.
  const Word added = repeated(static_cast<std::uint8_t>(size));
  const auto store_words = [&](std::size_t begin) {
    for (std::size_t at = begin; at < begin + 32; at += sizeof(Word)) {
      const Word head =
          load_word(&entry.head[at]) + (added & load_word(&entry.lengths[at]));
      std::memcpy(out + at, &head, sizeof head);
    }
  };
  store_words(0);
  if (entry.head_size > 32) store_words(32);
  out += entry.head_size;
  if (size > sizeof word) [[unlikely]] {
    store_long_varint(word, out);
  } else {
    store_le(out, word);
  }
  return out + size;
}

}  // namespace fastrec
