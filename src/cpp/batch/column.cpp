#include "batch/column.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastrec {
namespace {

bool holds_strings(const ColumnSpec& spec) { return spec.dtype == DType::kBytes; }

bool is_dense_numbers(const ColumnSpec& spec) {
  return !spec.has_row_splits() && !holds_strings(spec);
}

// Where one of several runs that lie one after another is.
struct Run {
  std::size_t begin = 0;
  std::size_t size = 0;
};

Run run_of(const GrowingArray& offsets, std::size_t i) {
  std::int64_t bounds[2];
  std::memcpy(bounds, offsets.data() + i * sizeof(std::int64_t), sizeof bounds);
  return {static_cast<std::size_t>(bounds[0]),
          static_cast<std::size_t>(bounds[1] - bounds[0])};
}

std::int64_t last_of(const GrowingArray& numbers) {
  std::int64_t last;
  std::memcpy(&last, numbers.data() + numbers.size() - sizeof last, sizeof last);
  return last;
}

// Writes `value` again and again, or zeros where there is none.
void fill_up(std::uint8_t* target, std::size_t n_bytes,
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

// What padded rows of byte strings are filled up with.
Bytes fill_of(const ColumnSpec& spec) {
  return spec.default_strings ? as_bytes(spec.default_strings->front()) : Bytes();
}

std::size_t offsets_bytes(std::size_t n_strings) {
  return (n_strings + 1) * sizeof(std::int64_t);
}

// Writes byte strings one after another, and where each of them ends.
class StringArrayWriter {
 public:
  StringArrayWriter(std::uint8_t* data, std::uint8_t* offsets)
      : data_(data), offset_(offsets) {
    end_string();
  }

  void append(Bytes string) {
    if (!string.empty()) std::memcpy(data_ + size_, string.data(), string.size());
    size_ += string.size();
    end_string();
  }

 private:
  void end_string() {
    const auto end = static_cast<std::int64_t>(size_);
    std::memcpy(offset_, &end, sizeof end);
    offset_ += sizeof end;
  }

  std::uint8_t* data_;
  std::uint8_t* offset_;
  std::size_t size_ = 0;
};

// The parts of column `c` for its Placement. The row splits of padded columns are a
// part of their own, since arrays of values do not refer to them.
constexpr std::size_t values_of(std::size_t c) { return 2 * c; }
constexpr std::size_t row_splits_of(std::size_t c) { return 2 * c + 1; }

}  // namespace

void GrowingArray::grow(std::size_t n_bytes) {
  // Batches are much alike: what the last one came to is what this one will need. The
  // eighth more is for those that are a little larger.
  const std::size_t expected = last_size_ + last_size_ / 8;
  auto larger = pool_->take(std::max({size_ + n_bytes, 2 * capacity_, expected}));
  if (size_ != 0) std::memcpy(larger->data(), data_, size_);
  block_ = std::move(larger);
  data_ = block_->data();
  capacity_ = block_->size();
}

std::shared_ptr<Block> GrowingArray::take_block() {
  data_ = nullptr;
  capacity_ = 0;
  return std::exchange(block_, nullptr);
}

Array GrowingArray::release() {
  std::uint8_t* data = data_;
  last_size_ = std::exchange(size_, 0);
  return {take_block(), data};
}

void GrowingArray::move_to(std::uint8_t* target) {
  if (size_ != 0) std::memcpy(target, data_, size_);
  drop();
}

void GrowingArray::drop() {
  // One huge batch must not keep its memory for as long as there are batches.
  constexpr std::size_t kKeptBytes = std::size_t{1} << 20;
  last_size_ = std::exchange(size_, 0);
  if (capacity_ > std::max(kKeptBytes, 4 * last_size_)) take_block();
}

BatchBuilder::BatchBuilder(std::shared_ptr<const Schema> schema,
                           std::shared_ptr<BlockPool> pool,
                           std::size_t padded_bytes_max)
    : schema_(std::move(schema)),
      pool_(std::move(pool)),
      placement_(pool_),
      padded_bytes_max_(padded_bytes_max) {
  dense_.resize(schema_->columns.size());
  for (const ColumnSpec& spec : schema_->columns) {
    rows_.push_back({nullptr, spec.row_bytes() * spec.n_slots});
    growing_.push_back({GrowingArray(pool_), GrowingArray(pool_), GrowingArray(pool_)});
  }
}

void BatchBuilder::begin(std::size_t n_rows) {
  if (n_rows != n_rows_ && n_rows_ != 0) {
    // An epoch ends with a short batch, and the next one begins with a long one.
    for (Growing& growing : growing_) growing.values.expect(n_rows, n_rows_);
  }
  n_rows_ = n_rows;
  placement_.clear();
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    if (is_dense_numbers(spec) && spec.slot == 0)
      placement_.announce(values_of(c), n_rows * rows_[c].stride);
  }
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    if (is_dense_numbers(spec)) {
      if (spec.slot == 0) {
        dense_[c] = placement_.cut(values_of(c), n_rows * rows_[c].stride);
        rows_[c].first = dense_[c].data;
      } else {
        rows_[c].first = rows_[c - 1].first + spec.row_bytes();
      }
      continue;
    }
    Growing& growing = growing_[c];
    growing.values.clear();
    growing.offsets.clear();
    growing.row_splits.clear();
    growing.n_items = 0;
    if (holds_strings(spec)) growing.offsets.append(0);
    if (spec.has_row_splits()) growing.row_splits.append(0);
  }
  dense_bytes_ = placement_.n_bytes();
  placement_.clear();
}

void BatchBuilder::retract(std::size_t column, std::size_t n) noexcept {
  const ColumnSpec& spec = schema_->columns[column];
  Growing& growing = growing_[column];
  if (holds_strings(spec)) {
    growing.offsets.retract(n * sizeof(std::int64_t));
    growing.values.retract_to(static_cast<std::size_t>(last_of(growing.offsets)));
  } else {
    growing.values.retract(n * spec.item_bytes);
  }
}

void BatchBuilder::rewind(std::size_t row) noexcept {
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    if (is_dense_numbers(spec) || spec.slot != 0) continue;
    Growing& growing = growing_[c];
    std::size_t n_values = row * spec.n_values * spec.n_slots;
    if (spec.has_row_splits()) {
      growing.row_splits.retract_to(offsets_bytes(row));
      growing.n_items = last_of(growing.row_splits);
      n_values = static_cast<std::size_t>(growing.n_items) * spec.n_values;
    }
    if (holds_strings(spec)) {
      growing.offsets.retract_to(offsets_bytes(n_values));
      growing.values.retract_to(static_cast<std::size_t>(last_of(growing.offsets)));
    } else {
      growing.values.retract_to(n_values * spec.item_bytes);
    }
  }
}

std::size_t BatchBuilder::n_last_items(std::size_t column) const noexcept {
  const GrowingArray& row_splits = growing_[column].row_splits;
  return run_of(row_splits, row_splits.size() / sizeof(std::int64_t) - 2).size;
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
      end_ragged_row(c, 0);
    } else {
      for (std::size_t i = 0; i < spec.n_values; ++i) append_string(c, {});
    }
  }
}

std::size_t BatchBuilder::padded_width(std::size_t column, std::size_t n_rows) const {
  const ColumnSpec& spec = schema_->columns[column];
  if (spec.length) return *spec.length;
  const GrowingArray& row_splits = growing_[column].row_splits;
  std::size_t longest = 0;
  for (std::size_t row = 0; row < n_rows; ++row) {
    longest = std::max(longest, run_of(row_splits, row).size);
  }
  return (longest + spec.multiple_of - 1) / spec.multiple_of * spec.multiple_of;
}

// Throws Error unless rows of `width` items fit into the limit.
void BatchBuilder::check_padding(std::size_t column, std::size_t n_rows,
                                 std::size_t width) const {
  const ColumnSpec& spec = schema_->columns[column];
  // What an item takes that is only fill: the others were delivered.
  const std::size_t value_bytes = holds_strings(spec)
                                      ? sizeof(std::int64_t) + fill_of(spec).size()
                                      : spec.item_bytes;
  // By division, as the product may not fit into a number.
  const std::size_t n_max =
      padded_bytes_max_ / std::max<std::size_t>(1, value_bytes * spec.n_values);
  if (n_rows == 0 || width <= n_max / n_rows) return;
  const GrowingArray& row_splits = growing_[column].row_splits;
  std::size_t longest = 0;
  for (std::size_t row = 1; row < n_rows; ++row) {
    if (run_of(row_splits, row).size > run_of(row_splits, longest).size) longest = row;
  }
  Error error(Errc::kPaddingTooLarge,
              "padding " + std::to_string(n_rows) + " rows to " +
                  std::to_string(width) + " items takes more than " +
                  std::to_string(padded_bytes_max_) +
                  " bytes: a spec with length= and truncate=True cuts long rows, and "
                  "limits=fastrec.Limits(padded_bytes=...) allows them",
              {});
  error.record = longest;
  error.feature = spec.key;
  throw error;
}

// The memory of the values of a padded column, of which there are `n_values`.
std::size_t BatchBuilder::padded_bytes(std::size_t column, std::size_t n_values) const {
  const ColumnSpec& spec = schema_->columns[column];
  const Growing& growing = growing_[column];
  if (!holds_strings(spec)) return n_values * spec.item_bytes;
  const std::size_t n_strings = growing.offsets.size() / sizeof(std::int64_t) - 1;
  return growing.values.size() + (n_values - n_strings) * fill_of(spec).size();
}

// Hands over the arrays of a column whose size is known only after its last row.
void BatchBuilder::finish_growing(std::size_t column, Column* result) {
  const auto place = [&](GrowingArray* growing) {
    if (growing->fills_own_block()) return growing->release();
    Array array = placement_.cut(values_of(column), growing->size());
    growing->move_to(array.data);
    return array;
  };
  const ColumnSpec& spec = schema_->columns[column];
  Growing& growing = growing_[column];
  result->n_values = holds_strings(spec)
                         ? growing.offsets.size() / sizeof(std::int64_t) - 1
                         : static_cast<std::size_t>(growing.n_items) * spec.n_values;
  result->values = place(&growing.values);
  if (holds_strings(spec)) result->offsets = place(&growing.offsets);
  if (spec.has_row_splits()) result->row_splits = place(&growing.row_splits);
}

// Copies the rows of a padded column to arrays in which all have one length.
void BatchBuilder::finish_padded(std::size_t column, std::size_t n_rows,
                                 Column* result) {
  const ColumnSpec& spec = schema_->columns[column];
  Growing& growing = growing_[column];
  const std::size_t width_values = result->width * spec.n_values;
  result->values =
      placement_.cut(values_of(column), padded_bytes(column, result->n_values));
  if (holds_strings(spec)) {
    const Bytes fill = fill_of(spec);
    result->offsets =
        placement_.cut(values_of(column), offsets_bytes(result->n_values));
    StringArrayWriter strings(result->values.data, result->offsets.data);
    for (std::size_t row = 0; row < n_rows; ++row) {
      const Run items = run_of(growing.row_splits, row);
      for (std::size_t i = 0; i < items.size * spec.n_values; ++i) {
        const Run bytes = run_of(growing.offsets, items.begin * spec.n_values + i);
        strings.append({growing.values.data() + bytes.begin, bytes.size});
      }
      for (std::size_t i = items.size * spec.n_values; i < width_values; ++i) {
        strings.append(fill);
      }
    }
    growing.offsets.drop();
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
      fill_up(target + n_bytes, width_bytes - n_bytes, spec.default_values);
    }
  }
  growing.values.drop();
  result->row_splits = placement_.cut(row_splits_of(column), growing.row_splits.size());
  growing.row_splits.move_to(result->row_splits.data);
}

Batch BatchBuilder::finish(std::size_t n_rows) {
  Batch batch;
  batch.n_rows = n_rows;
  batch.columns.resize(schema_->columns.size());
  // Rows that were skipped leave room in dense columns, which are then copied.
  const bool copies_dense = n_rows < n_rows_;
  batch.n_bytes = copies_dense ? 0 : dense_bytes_;
  placement_.clear();
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    if (spec.slot != 0) continue;
    if (is_dense_numbers(spec)) {
      if (copies_dense) placement_.announce(values_of(c), n_rows * rows_[c].stride);
      continue;
    }
    Growing& growing = growing_[c];
    if (spec.layout == Layout::kPadded) {
      Column& column = batch.columns[c];
      column.width = padded_width(c, n_rows);
      check_padding(c, n_rows, column.width);
      column.n_values = n_rows * column.width * spec.n_values;
      placement_.announce(values_of(c), padded_bytes(c, column.n_values));
      if (holds_strings(spec))
        placement_.announce(values_of(c), offsets_bytes(column.n_values));
      placement_.announce(row_splits_of(c), growing.row_splits.size());
      continue;
    }
    const auto announce = [&](const GrowingArray& array) {
      if (array.fills_own_block()) {
        batch.n_bytes += array.capacity();
      } else {
        placement_.announce(values_of(c), array.size());
      }
    };
    announce(growing.values);
    if (holds_strings(spec)) announce(growing.offsets);
    if (spec.has_row_splits()) announce(growing.row_splits);
  }

  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    Column& column = batch.columns[c];
    if (is_dense_numbers(spec)) {
      column.values = std::exchange(dense_[c], {});
      column.n_values = n_rows * spec.n_values * spec.n_slots;
      if (copies_dense && spec.slot == 0) {
        const std::size_t n_bytes = n_rows * rows_[c].stride;
        const Array whole =
            std::exchange(column.values, placement_.cut(values_of(c), n_bytes));
        if (n_bytes != 0) std::memcpy(column.values.data, whole.data, n_bytes);
      }
    } else if (spec.layout == Layout::kPadded) {
      finish_padded(c, n_rows, &column);
    } else if (spec.slot == 0) {
      finish_growing(c, &column);
    }
  }
  batch.n_bytes += placement_.n_bytes();
  placement_.clear();
  return batch;
}

}  // namespace fastrec
