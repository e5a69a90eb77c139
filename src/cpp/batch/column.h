// Column: rows of values -> the arrays of a batch.
//
//   dense    values[row][n_values]
//   raw      the same, each row the bytes of one string
//   ragged   row_splits[n_rows + 1], values[row_splits[n_rows]][n_values]
//   padded   values[n_rows][width][n_values], and row_splits that say what is not fill
//   stacked  values[row][n_slots], one array for several dense columns
//   bytes    wherever values are byte strings: data, offsets[n_strings + 1]
//
// A BatchBuilder is filled row by row. Dense columns are written to their block
// directly; where they lie depends on the number of rows only. The size of the other
// columns is known after the last row, so they grow in blocks of their own. Arrays over
// kOwnBlockBytes that fill at least half of such a block stay in it; the others are
// copied to blocks that fit.
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

  Array values;              // or the data of byte strings
  Array offsets;             // int64, byte strings only
  Array row_splits;          // int64, ragged and padded only
  std::size_t n_values = 0;  // numbers or strings in the whole column
  std::size_t width = 0;     // items in a row, padded only
};

struct Batch {
  std::size_t n_rows = 0;
  std::size_t n_bytes = 0;  // of blocks
  std::vector<Column> columns;
  std::vector<std::shared_ptr<Block>> blocks;
};

// Memory that grows at its end, in blocks of a pool.
class GrowingArray {
 public:
  // Smaller arrays are cheaper to copy than a block of their own.
  static constexpr std::size_t kOwnBlockBytes = std::size_t{256} << 10;

  explicit GrowingArray(std::shared_ptr<BlockPool> pool) : pool_(std::move(pool)) {}

  std::size_t size() const noexcept { return size_; }
  const std::uint8_t* data() const noexcept { return data_; }

  // Adds `n_bytes`, and returns where they begin. Earlier results become invalid.
  std::uint8_t* extend(std::size_t n_bytes) {
    if (n_bytes > capacity_ - size_ || data_ == nullptr) grow(n_bytes);
    std::uint8_t* begin = data_ + size_;
    size_ += n_bytes;
    return begin;
  }

  // Room for `n_bytes` more, of which advance() then adds those that were written.
  std::uint8_t* reserve(std::size_t n_bytes) {
    if (n_bytes > capacity_ - size_ || data_ == nullptr) grow(n_bytes);
    return data_ + size_;
  }
  void advance(std::size_t n_bytes) noexcept { size_ += n_bytes; }

  void append(std::int64_t value) {
    std::memcpy(extend(sizeof value), &value, sizeof value);
  }

  // Adds `bytes`. What comes after them may be read, too, up to `end`: few bytes are
  // copied sooner together with others than by themselves.
  void append(Bytes bytes, const std::uint8_t* end) {
    constexpr std::size_t kFewBytes = 16;
    if (bytes.size() <= kFewBytes && capacity_ - size_ >= kFewBytes &&
        static_cast<std::size_t>(end - bytes.data()) >= kFewBytes) {
      std::memcpy(data_ + size_, bytes.data(), kFewBytes);
      size_ += bytes.size();
    } else if (!bytes.empty()) {
      std::memcpy(extend(bytes.size()), bytes.data(), bytes.size());
    }
  }

  void clear() noexcept { size_ = 0; }

  // Takes the last `n_bytes` back.
  void retract(std::size_t n_bytes) noexcept { size_ -= n_bytes; }

  // Takes back all but the first `n_bytes`.
  void retract_to(std::size_t n_bytes) noexcept { size_ = n_bytes; }

  // Bytes of the block.
  std::size_t capacity() const noexcept { return capacity_; }

  // Whether to give the block away instead of copying its contents.
  bool fills_own_block() const noexcept {
    return size_ > kOwnBlockBytes && size_ >= capacity_ / 2;
  }

  // Gives the block away with all that is in it, and begins anew.
  Array release();

  // Copies all there is to `target`, and begins anew.
  void move_to(std::uint8_t* target);

  // Begins anew, with no more memory than contents of this size need.
  void drop();

 private:
  void grow(std::size_t n_bytes);
  std::shared_ptr<Block> take_block();

  std::shared_ptr<BlockPool> pool_;
  std::shared_ptr<Block> block_;
  std::uint8_t* data_ = nullptr;  // what is in the block
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::size_t last_size_ = 0;  // of the content before this
};

class BatchBuilder {
 public:
  static constexpr std::size_t kPaddedBytesMax = std::size_t{4} << 30;

  // One long row makes all others of a padded column as long: such a column may take
  // `padded_bytes_max`, which nothing else is bounded by.
  BatchBuilder(std::shared_ptr<const Schema> schema, std::shared_ptr<BlockPool> pool,
               std::size_t padded_bytes_max = kPaddedBytesMax);

  // Forgets what there was and makes room for `n_rows`.
  void begin(std::size_t n_rows);

  // Where the rows of a dense or raw column of numbers go.
  struct Rows {
    std::uint8_t* first = nullptr;
    std::size_t stride = 0;  // from row to row, in bytes
  };
  const Rows* rows() const noexcept { return rows_.data(); }  // by column

  // Where a row of a dense or raw column of numbers goes: spec.row_bytes() of them.
  std::uint8_t* row(std::size_t column, std::size_t row) const noexcept {
    return rows_[column].first + row * rows_[column].stride;
  }

  // Room for `n_bytes` more of values in a ragged or padded column of numbers.
  std::uint8_t* extend(std::size_t column, std::size_t n_bytes) {
    return growing_[column].values.extend(n_bytes);
  }

  // Adds a byte string to a column of them. What comes after it may be read, up to
  // `end`.
  void append_string(std::size_t column, Bytes string, const std::uint8_t* end) {
    // Stacked strings arrive in the order of their slots.
    Growing& growing = growing_[first_slots_[column]];
    growing.values.append(string, end);
    growing.offsets.append(static_cast<std::int64_t>(growing.values.size()));
  }
  void append_string(std::size_t column, Bytes string) {
    append_string(column, string, string.data() + string.size());
  }

  // Where the values of a column that grows are, and where its byte strings end.
  GrowingArray& values(std::size_t column) noexcept { return growing_[column].values; }
  GrowingArray& string_ends(std::size_t column) noexcept {
    return growing_[column].offsets;
  }

  // Adds a byte string of `n_bytes`, and returns where it goes.
  std::uint8_t* extend_string(std::size_t column, std::size_t n_bytes) {
    Growing& growing = growing_[column];
    std::uint8_t* const begin = growing.values.extend(n_bytes);
    growing.offsets.append(static_cast<std::int64_t>(growing.values.size()));
    return begin;
  }

  // Takes the last `n` values of a ragged or padded column back.
  void retract(std::size_t column, std::size_t n) noexcept;

  // Ends a row of a ragged or padded column that now has `n_items` more.
  void end_ragged_row(std::size_t column, std::size_t n_items) {
    Growing& growing = growing_[column];
    growing.n_items += static_cast<std::int64_t>(n_items);
    growing.row_splits.append(growing.n_items);
  }

  // Takes back whatever was added to row `row`, which is not filled yet.
  void rewind(std::size_t row) noexcept;

  // The items of the row that was ended last in a ragged column, one value each; as
  // numbers if it is a column of int64.
  std::size_t n_last_items(std::size_t column) const noexcept;
  std::span<const std::int64_t> last_items(std::size_t column) const noexcept;

  // Fills row `row` of every column with zeros, or as a list or string of nothing.
  void fill_empty(std::size_t row);

  // All columns with their first `n_rows` rows, which must have been filled. Throws an
  // Error, with the feature and the longest row as its record, where a padded column
  // takes too much. Reuses the memory of `old`.
  Batch finish(std::size_t n_rows, Batch old = {});

 private:
  // A column of numbers with the same size in every row.
  struct Dense {
    std::size_t column = 0;
    std::size_t array = 0;     // in dense_placement_
    std::size_t offset = 0;    // of its slot
    std::size_t n_values = 0;  // of a row, in all slots
  };

  // A column whose size is known after its last row.
  struct Growing {
    GrowingArray values, offsets, row_splits;
    std::int64_t n_items = 0;  // in the rows that have ended
  };

  using Array = Column::Array;
  // Deals out the arrays of a Placement in its order.
  class Cutter;

  void place_dense(std::size_t n_rows);
  void shorten_dense(std::size_t n_rows);
  void plan_growing(std::size_t column, std::size_t n_rows, Column* result);
  void finish_growing(std::size_t column, Cutter* cutter, Column* result);
  void finish_padded(std::size_t column, std::size_t n_rows, Cutter* cutter,
                     Column* result);
  std::size_t padded_width(std::size_t column, std::size_t n_rows) const;
  std::size_t padded_bytes(std::size_t column, std::size_t n_values) const;
  void check_padding(std::size_t column, std::size_t n_rows, std::size_t width) const;

  std::shared_ptr<const Schema> schema_;
  std::shared_ptr<BlockPool> pool_;
  const std::size_t padded_bytes_max_;
  // begin() and finish() read these, and not the specs, which take several cache lines.
  std::vector<Dense> dense_;
  std::vector<std::size_t> growing_columns_;  // without those that are stacked on them
  std::vector<std::size_t> first_slots_;      // by column
  std::vector<Rows> rows_;                    // by column
  std::vector<Growing> growing_;              // by column
  Placement dense_placement_, growing_placement_;
  std::size_t placed_rows_ = static_cast<std::size_t>(-1);  // in dense_placement_
  std::vector<std::shared_ptr<Block>> dense_blocks_;
  std::size_t n_rows_ = 0;  // for which there is room
};

}  // namespace fastrec
