#include "encode/encode_batch.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/prefetch.h"
#include "record/framing.h"
#include "wire/entry.h"

namespace fastrec {
namespace {

constexpr std::size_t kNumberBytes[] = {0, 0, sizeof(float), sizeof(std::int64_t)};

std::size_t number_bytes(FeatureKind kind) {
  return kNumberBytes[static_cast<std::size_t>(kind)];
}

// Has the numbers of rows to come on their way: there are more columns than the CPU
// follows by itself.
void prefetch_rows(const ColumnValues& column, std::size_t begin, std::size_t n) {
  constexpr std::size_t kMostBytes = 8 * kCacheLineBytes;
  const std::size_t item_bytes = number_bytes(column.kind);
  const std::size_t end = std::min(column.values.size(), (begin + n) * item_bytes);
  std::size_t at = begin * item_bytes;
  if (at < end && end - at > kMostBytes) return;  // rows that lie far apart
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

// Of a list whose values take `values` bytes: with tag and length, if it is packed.
std::uint64_t list_size(FeatureKind kind, std::uint64_t values) noexcept {
  if (kind == FeatureKind::kBytes || values == 0) return values;
  return field_size(values);
}

// The bytes of the message Feature whose values take `values` bytes.
std::uint64_t feature_size(FeatureKind kind, std::uint64_t values) noexcept {
  return field_size(list_size(kind, values));
}

// Stores all that comes before the values.
std::uint8_t* store_head(const ColumnValues& column, std::uint64_t values,
                         std::uint8_t* out) noexcept {
  const std::uint64_t list = list_size(column.kind, values);
  out = open_entry(as_bytes(column.key), field_size(list), out);
  out = open_field(static_cast<unsigned>(column.kind), list, out);
  if (column.kind != FeatureKind::kBytes && values != 0) {
    out = open_field(1, values, out);
  }
  return out;
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
    n_short_ += entries_.back().is_short();
  }
}

void BatchEncoder::check(const ColumnValues& column) const {
  const std::string name = "column '" + column.key + "'";
  const auto refuse = [&](const char* what) {
    throw std::invalid_argument(name + what);
  };
  if (column.kind == FeatureKind::kNone) refuse(" has no kind");
  if (!column.present.empty() && column.present.size() != n_rows_) {
    refuse(" does not say of each row whether it is there");
  }

  // How many values there are, and then, that they are as many as rows need.
  std::size_t n_values = 0;
  if (column.kind != FeatureKind::kBytes) {
    n_values = column.values.size() / number_bytes(column.kind);
  } else if (!column.offsets.empty()) {
    check_ascending(column.offsets, column.values.size(), name + ": offsets");
    n_values = column.offsets.size() - 1;
  } else if (column.string_bytes != 0) {
    n_values = column.values.size() / column.string_bytes;
  } else {
    n_values = SIZE_MAX;  // of strings without bytes there are any number
  }
  if (!column.row_splits.empty()) {
    if (column.row_splits.size() != n_rows_ + 1) refuse(" has another number of rows");
    check_ascending(column.row_splits, n_values, name + ": row_splits");
  } else if (column.n_values != 0 && n_values / column.n_values < n_rows_) {
    refuse(" has too few values");
  }
}

BatchEncoder::Entry BatchEncoder::entry_of(const ColumnValues& column) {
  Entry entry;
  const bool is_float = column.kind == FeatureKind::kFloat;
  const bool is_int = column.kind == FeatureKind::kInt64;
  const bool is_one = column.n_values == 1;
  if (!column.row_splits.empty() || !column.offsets.empty()) return entry;
  if (!is_one && !(is_float && column.n_values > 0)) return entry;

  if (!is_int) {
    entry.value_bytes =
        is_float ? column.n_values * sizeof(float) : column.string_bytes;
  }
  EntryHeader header =
      entry_header(as_bytes(column.key), column.kind, entry.value_bytes);
  if (is_one && (is_int || is_float) && header.bytes.size() <= Entry::kShortBytes) {
    entry.form = is_int ? Entry::Form::kInt : Entry::Form::kFloat;
    std::ranges::copy(header.bytes, entry.head.begin());
    entry.head_size = static_cast<std::uint8_t>(header.bytes.size());
    for (std::size_t i = 0; i < header.lengths.size(); ++i) {
      entry.lengths[i] = static_cast<std::uint8_t>(header.lengths[i]);
    }
  } else if (!is_int) {
    entry.form = Entry::Form::kConstant;
    entry.long_head = std::move(header.bytes);
  }
  return entry;
}

BatchEncoder::Run BatchEncoder::run_of(const ColumnValues& column,
                                       std::size_t row) noexcept {
  if (column.row_splits.empty()) {
    return {row * column.n_values, (row + 1) * column.n_values};
  }
  return {static_cast<std::size_t>(column.row_splits[row]),
          static_cast<std::size_t>(column.row_splits[row + 1])};
}

void BatchEncoder::load(std::size_t begin, std::size_t end, std::size_t step,
                        Tile* tile) const {
  std::size_t n = 0;
  for (std::size_t row = begin; row < end && n < Tile::kMostRows; row += step) {
    tile->rows_[n++] = row;
  }
  tile->n_rows_ = n;
  tile->short_bytes_.fill(0);
  tile->values_.resize(n_short_ * Tile::kMostRows);
  tile->sizes_.resize(columns_.size());
  std::uint64_t* first = tile->values_.data();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const ColumnValues& column = columns_[c];
    const Entry& entry = entries_[c];
    if (!entry.is_short()) continue;
    std::uint64_t* value = first++;
    prefetch_rows(column, begin + n * step, n * step);
    for (std::size_t i = 0; i < n; ++i, value += n_short_) {
      const std::size_t row = tile->rows_[i];
      std::uint64_t size;
      if (entry.form == Entry::Form::kInt) {
        std::memcpy(value, column.values.data() + row * sizeof *value, sizeof *value);
        size = varint_size(*value);
      } else {
        std::uint32_t bits;
        std::memcpy(&bits, column.values.data() + row * sizeof bits, sizeof bits);
        *value = bits;
        size = sizeof bits;
      }
      if (is_in(column, row)) tile->short_bytes_[i] += entry.head_size + size;
    }
  }
}

std::uint64_t BatchEncoder::measure(std::size_t i, Tile* tile) const {
  tile->ints_.clear();
  std::uint64_t total = tile->short_bytes_[i];
  if (n_short_ < columns_.size()) total += measure_others(tile->rows_[i], tile);
  tile->features_bytes_ = total;
  const std::uint64_t size = field_size(total);
  if (size > kMaxPayloadBytes) {
    throw std::length_error("row " + std::to_string(tile->rows_[i]) +
                            ": an example of " + std::to_string(size) +
                            " bytes is too large: protobuf reads at most " +
                            std::to_string(kMaxPayloadBytes));
  }
  return size;
}

std::uint64_t BatchEncoder::measure_others(std::size_t row, Tile* tile) const {
  std::uint64_t total = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const ColumnValues& column = columns_[c];
    const Entry& entry = entries_[c];
    if (entry.is_short() || !is_in(column, row)) continue;
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
      const std::size_t begin = tile->ints_.size();
      tile->ints_.resize(begin + run.size());
      std::uint64_t* ints = tile->ints_.data() + begin;
      if (run.size() != 0) {
        std::memcpy(ints, column.values.data() + run.begin * sizeof *ints,
                    run.size() * sizeof *ints);
      }
      for (std::size_t i = 0; i < run.size(); ++i) size += varint_size(ints[i]);
      break;
    }
    case FeatureKind::kFloat:
      size = run.size() * sizeof(float);
      break;
    default:
      for (std::size_t i = run.begin; i < run.end; ++i) {
        size += field_size(string_at(column, i).size());
      }
      break;
  }
  return size;
}

void BatchEncoder::store(std::size_t i, const Tile& tile,
                         std::uint8_t* out) const noexcept {
  const std::size_t row = tile.rows_[i];
  out = open_field(1, tile.features_bytes_, out);
  const std::uint64_t* value = tile.values_.data() + i * n_short_;
  const std::uint64_t* ints = tile.ints_.data();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const ColumnValues& column = columns_[c];
    const Entry& entry = entries_[c];
    if (!is_in(column, row)) {
      value += entry.is_short();
      continue;
    }
    switch (entry.form) {
      case Entry::Form::kFloat:
        // All of the head at once, which takes less time than to ask how much it is.
        std::memcpy(out, entry.head.data(), Entry::kShortBytes);
        out += entry.head_size;
        store_le(out, static_cast<std::uint32_t>(*value++));
        out += sizeof(float);
        break;
      case Entry::Form::kInt: {
        std::memcpy(out, entry.head.data(), Entry::kShortBytes);
        const auto size = static_cast<std::uint8_t>(varint_size(*value));
        for (const std::size_t at : entry.lengths) {
          out[at] = static_cast<std::uint8_t>(entry.head[at] + size);
        }
        out = store_varint_with_room(*value++, out + entry.head_size);
        break;
      }
      case Entry::Form::kConstant: {
        out = store_raw(entry.long_head.data(), entry.long_head.size(), out);
        const std::uint8_t* values = column.values.data() + row * entry.value_bytes;
        out = column.kind == FeatureKind::kFloat
                  ? store_floats(values, entry.value_bytes, out)
                  : store_raw(values, entry.value_bytes, out);
        break;
      }
      case Entry::Form::kAny:
        out = store_head(column, tile.sizes_[c], out);
        out = store_values(column, run_of(column, row), &ints, out);
        break;
    }
  }
}

std::uint8_t* BatchEncoder::store_values(const ColumnValues& column, Run run,
                                         const std::uint64_t** ints,
                                         std::uint8_t* out) noexcept {
  switch (column.kind) {
    case FeatureKind::kInt64:
      for (std::size_t i = 0; i < run.size(); ++i) {
        out = store_varint_with_room(*(*ints)++, out);
      }
      break;
    case FeatureKind::kFloat:
      out = store_floats(column.values.data() + run.begin * sizeof(float),
                         run.size() * sizeof(float), out);
      break;
    default:
      for (std::size_t i = run.begin; i < run.end; ++i) {
        out = store_string(1, string_at(column, i), out);
      }
      break;
  }
  return out;
}

}  // namespace fastrec
