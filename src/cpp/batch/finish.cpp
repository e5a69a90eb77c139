#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "batch/column.h"
#include "wire/field_writer.h"

namespace fastrec {
namespace {

// Fills `target` with copies of `value`, or with zeros.
void fill_repeated(std::uint8_t* target, std::size_t n_bytes,
                   const std::optional<std::vector<std::uint8_t>>& value) {
  if (n_bytes == 0) return;
  if (!value) {
    std::memset(target, 0, n_bytes);
    return;
  }
  std::memcpy(target, value->data(), value->size());
  for (std::size_t done = value->size(); done < n_bytes;) {
    const std::size_t n = std::min(done, n_bytes - done);
    std::memcpy(target + done, target, n);
    done += n;
  }
}

// The padding of a column of byte strings.
Bytes padding_of(const ColumnSpec& spec) {
  return spec.default_strings ? as_bytes(spec.default_strings->front()) : Bytes();
}

// The two groups of arrays of column `c` in its Placement. The row splits of a padded
// column and extents are a separate group: callers may keep the values without them.
constexpr std::size_t values_of(std::size_t c) { return 2 * c; }
constexpr std::size_t row_splits_of(std::size_t c) { return 2 * c + 1; }

}  // namespace

// The items in each row of a padded column. Throws Error if the rows exceed the limit.
std::size_t BatchBuilder::padded_width(std::size_t column, std::size_t n_rows) const {
  const ColumnSpec& spec = schema_->columns[column];
  if (n_rows == 0) return spec.length.value_or(0);
  const GrowingArray& row_splits = growing_[column].row_splits;
  std::size_t longest = 0, n_items = 0;
  for (std::size_t row = 0; row < n_rows; ++row) {
    const std::size_t size = run_of(row_splits, row).size;
    if (size <= n_items) continue;
    longest = row;
    n_items = size;
  }
  const std::size_t n_steps = (n_items + spec.multiple_of - 1) / spec.multiple_of;
  const std::size_t width = spec.length.value_or(n_steps * spec.multiple_of);
  // Only padding counts: the file had the bytes of the other items.
  const std::size_t value_bytes = spec.holds_strings()
                                      ? sizeof(std::int64_t) + padding_of(spec).size()
                                      : spec.item_bytes;
  // Divides, because the product may overflow.
  const std::size_t n_max =
      padded_bytes_max_ / std::max<std::size_t>(1, value_bytes * spec.n_values);
  if (width <= n_max / n_rows) return width;
  Error error(Errc::kPaddingTooLarge,
              "padding " + std::to_string(n_rows) + " rows to " +
                  std::to_string(width) + " items takes more than " +
                  std::to_string(padded_bytes_max_) +
                  " bytes; cut long rows with length= and truncate=True, or raise "
                  "limits=fastrec.Limits(max_padded_bytes=...)",
              {});
  error.record = longest;
  error.feature = spec.key;
  throw error;
}

// The numbers or strings in a growing column before padding.
std::size_t BatchBuilder::n_values_of(std::size_t column) const {
  const ColumnSpec& spec = schema_->columns[column];
  const GrowingColumn& growing = growing_[column];
  return spec.holds_strings()
             ? n_runs(growing.offsets)
             : static_cast<std::size_t>(growing.n_items) * spec.n_values;
}

class BatchBuilder::ArrayPlacer {
 public:
  // Allocates the blocks of `placement` from `pool` for `batch`.
  ArrayPlacer(const Placement& placement, BlockPool* pool, Batch* batch)
      : batch_(batch),
        first_block_(batch->blocks.size()),
        place_(placement.places().begin()) {
    for (const std::size_t n_bytes : placement.block_bytes()) {
      add(pool->take(n_bytes));
    }
  }

  Array place() {
    const std::size_t block = first_block_ + place_->block;
    return {batch_->blocks[block]->data() + (place_++)->offset, block};
  }

  // Moves the contents of `growing` to the batch: its block, or a copy.
  Array place(GrowingArray* growing) {
    if (growing->fills_own_block()) {
      std::uint8_t* data = add(growing->release().block);
      return {data, batch_->blocks.size() - 1};
    }
    const Array array = place();
    growing->move_to(array.data);
    return array;
  }

 private:
  std::uint8_t* add(std::shared_ptr<Block> block) {
    batch_->n_bytes += block->size();
    return batch_->blocks.emplace_back(std::move(block))->data();
  }

  Batch* batch_;
  std::size_t first_block_;
  std::span<const Placement::Place>::iterator place_;
};

// Moves the arrays of a growing column to the batch.
void BatchBuilder::finish_growing(std::size_t column, ArrayPlacer* placer,
                                  Column* result) {
  const ColumnSpec& spec = schema_->columns[column];
  GrowingColumn& growing = growing_[column];
  result->n_values = n_values_of(column);
  result->values = placer->place(&growing.values);
  if (spec.holds_strings()) result->offsets = placer->place(&growing.offsets);
  if (spec.has_row_splits()) result->row_splits = placer->place(&growing.row_splits);
  if (spec.reach) result->extents = placer->place(&growing.extents);
}

// Copies the rows of a padded column to arrays of equal rows.
void BatchBuilder::finish_padded(std::size_t column, std::size_t n_rows,
                                 ArrayPlacer* placer, Column* result) {
  const ColumnSpec& spec = schema_->columns[column];
  GrowingColumn& growing = growing_[column];
  const std::size_t width_values = result->width * spec.n_values;
  result->values = placer->place();
  if (spec.holds_strings()) {
    const Bytes padding = padding_of(spec);
    result->offsets = placer->place();
    std::uint8_t* const data = result->values.data;
    std::uint8_t* offset = result->offsets.data;
    std::int64_t end = 0;
    store_le(offset, end);
    const auto append = [&](Bytes string) {
      store_raw(string.data(), string.size(), data + end);
      end += static_cast<std::int64_t>(string.size());
      store_le(offset += sizeof end, end);
    };
    for (std::size_t row = 0; row < n_rows; ++row) {
      const Run items = run_of(growing.row_splits, row);
      for (std::size_t i = 0; i < items.size * spec.n_values; ++i) {
        const Run bytes = run_of(growing.offsets, items.begin * spec.n_values + i);
        append({growing.values.data() + bytes.begin, bytes.size});
      }
      for (std::size_t i = items.size * spec.n_values; i < width_values; ++i) {
        append(padding);
      }
    }
    growing.offsets.reset();
  } else {
    const std::size_t width_bytes = width_values * spec.item_bytes;
    std::uint8_t* target = result->values.data;
    for (std::size_t row = 0; row < n_rows; ++row, target += width_bytes) {
      const Run items = run_of(growing.row_splits, row);
      const std::size_t n_bytes = items.size * spec.row_bytes();
      if (n_bytes != 0) {
        std::memcpy(target, growing.values.data() + items.begin * spec.row_bytes(),
                    n_bytes);
      }
      fill_repeated(target + n_bytes, width_bytes - n_bytes, spec.default_values);
    }
  }
  growing.values.reset();
  result->row_splits = placer->place();
  growing.row_splits.move_to(result->row_splits.data);
  if (spec.reach) result->extents = placer->place(&growing.extents);
}

// Adds the sizes of the arrays of a column to growing_placement_.
void BatchBuilder::plan_growing(std::size_t column, std::size_t n_rows,
                                Column* result) {
  const ColumnSpec& spec = schema_->columns[column];
  const GrowingColumn& growing = growing_[column];
  const auto add = [&](const GrowingArray& array, std::size_t group) {
    if (!array.fills_own_block()) growing_placement_.add(group, array.size());
  };
  if (spec.layout == Layout::kPadded) {
    result->width = padded_width(column, n_rows);
    result->n_values = n_rows * result->width * spec.n_values;
    if (spec.holds_strings()) {
      const std::size_t n_padding = result->n_values - n_values_of(column);
      growing_placement_.add(
          values_of(column),
          growing.values.size() + n_padding * padding_of(spec).size());
      growing_placement_.add(values_of(column), offsets_bytes(result->n_values));
    } else {
      growing_placement_.add(values_of(column), result->n_values * spec.item_bytes);
    }
    growing_placement_.add(row_splits_of(column), growing.row_splits.size());
  } else {
    add(growing.values, values_of(column));
    if (spec.holds_strings()) add(growing.offsets, values_of(column));
    if (spec.has_row_splits()) add(growing.row_splits, values_of(column));
  }
  if (spec.reach) add(growing.extents, row_splits_of(column));
}

// Copies the first `n_rows` of the dense columns to blocks of the right size.
void BatchBuilder::shorten_dense(std::size_t n_rows) {
  const auto blocks = std::move(dense_blocks_);
  const std::vector<Rows> rows = rows_;
  place_dense(n_rows);
  for (const DenseColumn& dense : dense_) {
    if (dense.column != first_slots_[dense.column]) continue;
    const std::size_t n_bytes = n_rows * rows[dense.column].stride;
    if (n_bytes == 0) continue;
    std::memcpy(rows_[dense.column].first, rows[dense.column].first, n_bytes);
  }
}

Batch BatchBuilder::finish(std::size_t n_rows, Batch old) {
  // Skipped rows leave unused room in dense columns.
  if (n_rows < n_rows_) shorten_dense(n_rows);
  Batch batch = std::move(old);
  batch.n_rows = n_rows;
  batch.n_bytes = 0;
  batch.columns.assign(rows_.size(), {});
  const auto places = dense_placement_.places();
  for (const DenseColumn& dense : dense_) {
    Column& column = batch.columns[dense.column];
    column.values = {rows_[dense.column].first, places[dense.array].block};
    column.n_values = n_rows * dense.n_values;
  }

  growing_placement_.clear();
  for (const std::size_t c : growing_columns_) {
    plan_growing(c, n_rows, &batch.columns[c]);
  }
  batch.blocks.clear();
  batch.blocks.swap(dense_blocks_);
  for (const std::shared_ptr<Block>& block : batch.blocks) {
    batch.n_bytes += block->size();
  }
  if (growing_columns_.empty()) return batch;
  growing_placement_.divide();
  ArrayPlacer placer(growing_placement_, pool_.get(), &batch);
  for (const std::size_t c : growing_columns_) {
    if (schema_->columns[c].layout == Layout::kPadded) {
      finish_padded(c, n_rows, &placer, &batch.columns[c]);
    } else {
      finish_growing(c, &placer, &batch.columns[c]);
    }
  }
  return batch;
}

std::span<const Column> BatchBuilder::finish_row() {
  row_.assign(rows_.size(), {});
  for (const DenseColumn& dense : dense_) {
    row_[dense.column].values.data = rows_[dense.column].first;
    row_[dense.column].n_values = dense.n_values;
  }
  for (const std::size_t c : growing_columns_) {
    const ColumnSpec& spec = schema_->columns[c];
    GrowingColumn& growing = growing_[c];
    Column& column = row_[c];
    column.n_values = n_values_of(c);
    if (spec.layout == Layout::kPadded) {
      column.width = padded_width(c, 1);
      const std::size_t n_padding = column.width * spec.n_values - column.n_values;
      if (spec.holds_strings()) {
        for (std::size_t i = 0; i < n_padding; ++i) append_string(c, padding_of(spec));
      } else {
        const std::size_t n_bytes = n_padding * spec.item_bytes;
        fill_repeated(growing.values.extend(n_bytes), n_bytes, spec.default_values);
      }
      column.n_values += n_padding;
    }
    column.values.data = growing.values.data();
    column.offsets.data = growing.offsets.data();
    column.row_splits.data = growing.row_splits.data();
  }
  return row_;
}

}  // namespace fastrec
