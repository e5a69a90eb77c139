#include "batch/column.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fastrec {
namespace {

bool is_dense_numbers(const ColumnSpec& spec) {
  return !spec.has_row_splits() && !spec.holds_strings();
}

std::int64_t last_of(const GrowingArray& numbers) {
  std::int64_t last;
  std::memcpy(&last, numbers.data() + numbers.size() - sizeof last, sizeof last);
  return last;
}

// The first item of a list and its size.
constexpr std::size_t kExtentBytes = 2 * sizeof(std::int64_t);

}  // namespace

BatchBuilder::BatchBuilder(std::shared_ptr<const Schema> schema,
                           std::shared_ptr<BlockPool> pool,
                           std::size_t padded_bytes_max)
    : schema_(std::move(schema)),
      pool_(std::move(pool)),
      padded_bytes_max_(padded_bytes_max),
      dense_placement_(pool_),
      growing_placement_(pool_) {
  std::size_t n_arrays = 0;
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    if (is_dense_numbers(spec)) {
      n_arrays += spec.slot == 0;
      dense_.push_back({c, n_arrays - 1, spec.slot * spec.row_bytes(),
                        spec.n_values * spec.n_slots});
    } else if (spec.slot == 0) {
      growing_columns_.push_back(c);
    }
    first_slots_.push_back(c - spec.slot);
    rows_.push_back({nullptr, spec.row_bytes() * spec.n_slots});
    growing_.push_back({GrowingArray(pool_), GrowingArray(pool_), GrowingArray(pool_),
                        GrowingArray(pool_)});
    if (spec.reach) reaching_.push_back(c);
  }
}

// Allocates the dense columns for `n_rows`.
void BatchBuilder::place_dense(std::size_t n_rows) {
  if (n_rows != placed_rows_) {
    dense_placement_.clear();
    for (const DenseColumn& dense : dense_) {
      if (dense.column != first_slots_[dense.column]) continue;
      dense_placement_.add(dense.column, n_rows * rows_[dense.column].stride);
    }
    dense_placement_.divide();
    placed_rows_ = n_rows;
  }
  dense_blocks_.clear();
  for (const std::size_t n_bytes : dense_placement_.block_bytes()) {
    dense_blocks_.push_back(pool_->take(n_bytes));
  }
  const auto places = dense_placement_.places();
  for (const DenseColumn& dense : dense_) {
    const Placement::Place& place = places[dense.array];
    rows_[dense.column].first =
        dense_blocks_[place.block]->data() + place.offset + dense.offset;
  }
}

void BatchBuilder::begin(std::size_t n_rows, std::size_t n_bytes) {
  n_rows_ = n_rows;
  place_dense(n_rows);
  for (const std::size_t c : growing_columns_) {
    const ColumnSpec& spec = schema_->columns[c];
    GrowingColumn& growing = growing_[c];
    growing.values.begin(n_rows, n_bytes);
    growing.offsets.retract_to(0);
    growing.row_splits.retract_to(0);
    growing.extents.retract_to(0);
    growing.n_items = 0;
    if (spec.holds_strings()) growing.offsets.append(0);
    if (spec.has_row_splits()) growing.row_splits.append(0);
  }
}

void BatchBuilder::retract(std::size_t column, std::size_t n) noexcept {
  const ColumnSpec& spec = schema_->columns[column];
  GrowingColumn& growing = growing_[column];
  if (spec.holds_strings()) {
    growing.offsets.retract(n * sizeof(std::int64_t));
    growing.values.retract_to(static_cast<std::size_t>(last_of(growing.offsets)));
  } else {
    growing.values.retract(n * spec.item_bytes);
  }
}

void BatchBuilder::rewind(std::size_t row) noexcept {
  for (const std::size_t c : growing_columns_) {
    const ColumnSpec& spec = schema_->columns[c];
    GrowingColumn& growing = growing_[c];
    std::size_t n_values = row * spec.n_values * spec.n_slots;
    if (spec.has_row_splits()) {
      growing.row_splits.retract_to(offsets_bytes(row));
      if (spec.reach) growing.extents.retract_to(row * kExtentBytes);
      growing.n_items = last_of(growing.row_splits);
      n_values = static_cast<std::size_t>(growing.n_items) * spec.n_values;
    }
    if (spec.holds_strings()) {
      growing.offsets.retract_to(offsets_bytes(n_values));
      growing.values.retract_to(static_cast<std::size_t>(last_of(growing.offsets)));
    } else {
      growing.values.retract_to(n_values * spec.item_bytes);
    }
  }
}

BatchBuilder::Items BatchBuilder::needed_items(std::size_t column,
                                               std::size_t n) const noexcept {
  const std::optional<Reach>& reach = schema_->columns[column].reach;
  if (!reach || n == 0) return {0, n};
  const auto last = static_cast<std::int64_t>(n) - 1;
  const auto clipped = [&](std::int64_t row, std::int64_t offset) {
    const std::int64_t item = reach->first + row * reach->every + offset;
    return static_cast<std::size_t>(std::clamp(item, std::int64_t{0}, last));
  };
  return {clipped(first_row_, reach->low), clipped(last_row_, reach->high) + 1};
}

void BatchBuilder::end_needed_row(std::size_t column, std::size_t n) {
  const auto [begin, end] = needed_items(column, n);
  end_ragged_row(column, end - begin);
  if (!schema_->columns[column].reach) return;
  growing_[column].extents.append(static_cast<std::int64_t>(begin));
  growing_[column].extents.append(static_cast<std::int64_t>(n));
}

void BatchBuilder::trim_lists(std::size_t row) {
  for (const std::size_t c : reaching_) {
    GrowingColumn& growing = growing_[c];
    if (growing.extents.size() > row * kExtentBytes) continue;
    const ColumnSpec& spec = schema_->columns[c];
    const Run list = run_of(growing.row_splits, row);
    const auto [begin, end] = needed_items(c, list.size);
    const std::size_t first = list.begin * spec.n_values;
    const std::size_t n_before = begin * spec.n_values;
    const std::size_t n_kept = (end - begin) * spec.n_values;
    Run values{first * spec.item_bytes, n_kept * spec.item_bytes};
    std::size_t n_bytes_before = n_before * spec.item_bytes;
    if (spec.holds_strings()) {
      values.begin = run_of(growing.offsets, first).begin;
      const std::size_t kept_begin = run_of(growing.offsets, first + n_before).begin;
      n_bytes_before = kept_begin - values.begin;
      auto* const ends = reinterpret_cast<std::int64_t*>(growing.offsets.data());
      for (std::size_t i = 0; i <= n_kept; ++i) {
        ends[first + i] =
            ends[first + n_before + i] - static_cast<std::int64_t>(n_bytes_before);
      }
      values.size = static_cast<std::size_t>(ends[first + n_kept]) - values.begin;
      growing.offsets.retract_to(offsets_bytes(first + n_kept));
    }
    if (values.size != 0) {
      std::uint8_t* const target = growing.values.data() + values.begin;
      std::memmove(target, target + n_bytes_before, values.size);
    }
    growing.values.retract_to(values.begin + values.size);
    growing.row_splits.retract_to(offsets_bytes(row));
    growing.n_items = static_cast<std::int64_t>(list.begin);
    end_needed_row(c, list.size);
  }
}

std::size_t BatchBuilder::n_last_items(std::size_t column) const noexcept {
  const GrowingArray& row_splits = growing_[column].row_splits;
  return run_of(row_splits, n_runs(row_splits) - 1).size;
}

std::span<const std::int64_t> BatchBuilder::last_items(
    std::size_t column) const noexcept {
  const std::size_t n = n_last_items(column);
  const GrowingArray& values = growing_[column].values;
  if (n == 0) return {};
  return {reinterpret_cast<const std::int64_t*>(values.data() + values.size()) - n, n};
}

void BatchBuilder::fill_empty(std::size_t row) {
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    if (is_dense_numbers(spec)) {
      std::memset(this->row(c, row), 0, spec.row_bytes());
    } else if (spec.has_row_splits()) {
      end_needed_row(c, 0);
    } else {
      for (std::size_t i = 0; i < spec.n_values; ++i) append_string(c, {});
    }
  }
}

}  // namespace fastrec
