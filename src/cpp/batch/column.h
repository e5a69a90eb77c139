// Column: rows of values -> the arrays of a batch.
//
//   dense    values[row][n_values]
//   raw      the same, each row the bytes of one string
//   ragged   row_splits[n_rows + 1], values[row_splits[n_rows]][n_values]
//   padded   values[n_rows][width][n_values], and the row_splits before padding
//   stacked  values[row][n_slots], one array for several dense columns
//   bytes    any of these for byte strings: data, offsets[n_strings + 1]
//   extents  of a column with a reach: [n_rows][2], the number of a row's first item in
//            its list, and the size of the list
//
// A BatchBuilder is filled row by row. Dense columns are written directly to their
// final place, which depends on the number of rows only. The other columns grow in
// separate blocks until the last row. finish() hands over the blocks of arrays that are
// larger than kOwnBlockBytes and fill at least half of their block, and copies all
// other arrays to blocks of the right size.
//
// Columns share a block only if it is small compared with each of them: keeping any one
// column keeps at most twice its bytes and a page alive (batch/placement.h). So a
// caller that keeps the labels of a batch does not keep its images.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "batch/growing_array.h"
#include "batch/placement.h"
#include "batch/schema.h"
#include "batch/slab.h"

namespace fastrec {

struct Column {
  // An array in a block of the batch.
  struct Array {
    std::uint8_t* data = nullptr;
    std::size_t block = 0;  // in Batch::blocks
  };

  Array values;              // for byte strings: their data
  Array offsets;             // int64, byte strings only
  Array row_splits;          // int64, ragged and padded only
  Array extents;             // int64, with a reach only
  std::size_t n_values = 0;  // numbers or strings in the whole column
  std::size_t width = 0;     // items in a row, padded only
};

struct Batch {
  std::size_t n_rows = 0;
  std::size_t n_bytes = 0;  // of blocks
  std::vector<Column> columns;
  std::vector<std::shared_ptr<Block>> blocks;
};

class BatchBuilder {
 public:
  static constexpr std::size_t kPaddedBytesMax = std::size_t{4} << 30;

  // `padded_bytes_max` limits each padded column, because one long row lengthens all
  // rows.
  BatchBuilder(std::shared_ptr<const Schema> schema, std::shared_ptr<BlockPool> pool,
               std::size_t padded_bytes_max = kPaddedBytesMax);

  // Starts a new batch with room for `n_rows`, which are decoded from about `n_bytes`
  // bytes.
  void begin(std::size_t n_rows, std::size_t n_bytes = 0);

  // The memory of a dense or raw column of numbers.
  struct Rows {
    std::uint8_t* first = nullptr;
    std::size_t stride = 0;  // from row to row, in bytes
  };
  const Rows* rows() const noexcept { return rows_.data(); }  // by column

  // The spec.row_bytes() bytes of a row of such a column.
  std::uint8_t* row(std::size_t column, std::size_t row) const noexcept {
    return rows_[column].first + row * rows_[column].stride;
  }

  // Appends `n_bytes` uninitialized bytes to a ragged or padded column of numbers.
  std::uint8_t* extend(std::size_t column, std::size_t n_bytes) {
    return growing_[column].values.extend(n_bytes);
  }

  // Appends a byte string. May over-read up to `end`.
  void append_string(std::size_t column, Bytes string, const std::uint8_t* end) {
    // Stacked strings are appended in the order of their slots.
    GrowingColumn& growing = growing_[first_slots_[column]];
    growing.values.append(string, end);
    growing.offsets.append(static_cast<std::int64_t>(growing.values.size()));
  }
  void append_string(std::size_t column, Bytes string) {
    append_string(column, string, string.data() + string.size());
  }

  // The values of a growing column, and the end offsets of its byte strings.
  GrowingArray& values(std::size_t column) noexcept { return growing_[column].values; }
  GrowingArray& string_ends(std::size_t column) noexcept {
    return growing_[column].offsets;
  }

  // Appends an uninitialized byte string of `n_bytes` and returns a pointer to it.
  std::uint8_t* extend_string(std::size_t column, std::size_t n_bytes) {
    GrowingColumn& growing = growing_[column];
    std::uint8_t* const begin = growing.values.extend(n_bytes);
    growing.offsets.append(static_cast<std::int64_t>(growing.values.size()));
    return begin;
  }

  // Removes the last `n` values of a ragged or padded column.
  void retract(std::size_t column, std::size_t n) noexcept;

  // Ends a row of `n_items` items in a ragged or padded column.
  void end_ragged_row(std::size_t column, std::size_t n_items) {
    GrowingColumn& growing = growing_[column];
    growing.n_items += static_cast<std::int64_t>(n_items);
    growing.row_splits.append(growing.n_items);
  }

  // Begins a record whose rows `first` to `last` are needed; see Reach.
  void begin_record(std::uint64_t first, std::uint64_t last) noexcept {
    first_row_ = static_cast<std::int64_t>(first);
    last_row_ = static_cast<std::int64_t>(last);
  }

  // The items that a list of `n` items must keep.
  struct Items {
    std::size_t begin = 0, end = 0;
  };
  Items needed_items(std::size_t column, std::size_t n) const noexcept;

  // Ends a row of a ragged column, whose list has `n` items; only the needed ones were
  // appended.
  void end_needed_row(std::size_t column, std::size_t n);

  // Removes the items of row `row` that are not needed.
  void trim_lists(std::size_t row);

  // Removes everything that was added to the incomplete row `row`.
  void rewind(std::size_t row) noexcept;

  // The last complete row of a ragged column of one-value items: its length, and its
  // items if the column is int64.
  std::size_t n_last_items(std::size_t column) const noexcept;
  std::span<const std::int64_t> last_items(std::size_t column) const noexcept;

  // Fills row `row` of every column with zeros, empty lists and empty strings.
  void fill_empty(std::size_t row);

  // Returns all columns with the first `n_rows` rows, which must be complete. Throws an
  // Error, with the feature and the longest row as its record, if a padded column
  // exceeds its limit. Reuses the vectors of `old`.
  Batch finish(std::size_t n_rows, Batch old = {});

  // Returns the columns of a batch of one complete row, in memory of this that is valid
  // until begin(). Throws like finish(). Call it once.
  std::span<const Column> finish_row();

 private:
  // A column of numbers whose rows all have one size.
  struct DenseColumn {
    std::size_t column = 0;
    std::size_t array = 0;     // in dense_placement_
    std::size_t offset = 0;    // of its slot
    std::size_t n_values = 0;  // of a row, in all slots
  };

  // A column whose size is known after its last row.
  struct GrowingColumn {
    GrowingArray values, offsets, row_splits, extents;
    std::int64_t n_items = 0;  // in the rows that have ended
  };

  using Array = Column::Array;
  // Returns the arrays of a Placement in the order they were added.
  class ArrayPlacer;

  void place_dense(std::size_t n_rows);
  void shorten_dense(std::size_t n_rows);
  void plan_growing(std::size_t column, std::size_t n_rows, Column* result);
  void finish_growing(std::size_t column, ArrayPlacer* placer, Column* result);
  void finish_padded(std::size_t column, std::size_t n_rows, ArrayPlacer* placer,
                     Column* result);
  std::size_t padded_width(std::size_t column, std::size_t n_rows) const;
  std::size_t n_values_of(std::size_t column) const;

  std::shared_ptr<const Schema> schema_;
  std::shared_ptr<BlockPool> pool_;
  const std::size_t padded_bytes_max_;
  // begin() and finish() read these instead of the specs, which span cache lines.
  std::vector<DenseColumn> dense_;
  std::vector<std::size_t> growing_columns_;   // for stacked columns, the first slot
  std::vector<std::size_t> first_slots_;       // by column
  std::vector<std::size_t> reaching_;          // columns with a reach
  std::int64_t first_row_ = 0, last_row_ = 0;  // see begin_record()
  std::vector<Rows> rows_;                     // by column
  std::vector<GrowingColumn> growing_;         // by column
  Placement dense_placement_, growing_placement_;
  std::size_t placed_rows_ = static_cast<std::size_t>(-1);  // in dense_placement_
  std::vector<std::shared_ptr<Block>> dense_blocks_;
  std::size_t n_rows_ = 0;   // room that begin() made
  std::vector<Column> row_;  // see finish_row()
};

}  // namespace fastrec
