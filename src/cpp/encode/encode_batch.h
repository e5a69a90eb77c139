// EncodeBatch: columns of values -> a serialized tf.train.Example for each row.
//
//   numbers   values[row][n_values]       or values[row_splits[row] ..
//   row_splits[row+1]] strings   the same of strings; string i is data[offsets[i] ..
//   offsets[i+1]],
//             or, if all have one size, data[i * string_bytes ...]
//
// Features come in the order of the columns, in the form that example/encode.h draws;
// so all records of a batch have one order, and keys and headers are made once. What is
// the same in every row (a float, raw bytes of one size) is a copy of a header and of
// the values.
//
// The columns may change while they are read, which gives values of before or after,
// but never a message of another size than was measured: what sizes depend on is read
// once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "batch/schema.h"

namespace fastrec {

// A column to write: views of what the caller holds, and copies of where things are.
struct ColumnValues {
  std::string key;
  FeatureKind kind = FeatureKind::kInt64;
  Bytes values;  // int64 or float32 as the machine has them, or the bytes of strings
  std::size_t n_values = 1;  // of a row, without row_splits
  std::vector<std::int64_t> row_splits;
  std::size_t string_bytes = 0;  // without offsets
  std::vector<std::int64_t> offsets;
  std::vector<std::uint8_t> present;  // empty: the feature is in every row
};

class BatchEncoder {
 public:
  // How far store() writes past the end of a message.
  static constexpr std::size_t kSlackBytes = 64;

  // Throws std::invalid_argument if a column does not hold `n_rows` rows.
  BatchEncoder(std::vector<ColumnValues> columns, std::size_t n_rows);

  std::size_t n_rows() const noexcept { return n_rows_; }

  // Rows that are being encoded; each thread has its own.
  class Tile {
   public:
    static constexpr std::size_t kMostRows = 32;

    std::size_t n_rows() const noexcept { return n_rows_; }

   private:
    friend class BatchEncoder;

    std::size_t n_rows_ = 0;
    std::array<std::size_t, kMostRows> rows_;
    // Of what all columns of short entries come to.
    std::array<std::uint64_t, kMostRows> short_bytes_;
    // Their values, row by row.
    std::vector<std::uint64_t> values_;
    // Of the row that was measured last: how long other features are, and the integers
    // in them.
    std::vector<std::uint64_t> sizes_;
    std::vector<std::uint64_t> ints_;
    std::uint64_t features_bytes_ = 0;
  };

  // Takes rows `begin`, `begin + step`, ... below `end`, as many as fit. Columns are
  // read one after another, each for all of these rows: read row by row, columns that
  // begin at like addresses would drive each other out of the cache.
  void load(std::size_t begin, std::size_t end, std::size_t step, Tile* tile) const;

  // The size in bytes of the Example of row `i` of the tile. Throws std::length_error
  // if protobuf could not read it because it has 2 GiB or more.
  std::uint64_t measure(std::size_t i, Tile* tile) const;

  // Stores the Example of row `i`, which was measured last, to `out`, which has room
  // for it and for kSlackBytes more.
  void store(std::size_t i, const Tile& tile, std::uint8_t* out) const noexcept;

 private:
  // How the feature of a column is written.
  struct Entry {
    static constexpr std::size_t kShortBytes = 64;

    enum class Form : std::uint8_t {
      kFloat,     // one float, after a short head
      kInt,       // one integer, after a short head whose lengths are single bytes
      kConstant,  // head and values have one size in all rows
      kAny,
    };
    Form form = Form::kAny;
    bool is_short() const noexcept {
      return form == Form::kFloat || form == Form::kInt;
    }
    // kFloat, kInt: what comes before the value.
    std::uint8_t head_size = 0;
    // kInt: where in the head the lengths are, each of them without the value.
    std::array<std::uint8_t, 4> lengths = {};
    std::array<std::uint8_t, kShortBytes> head = {};
    // kConstant: the same of any size, and the size of the values.
    std::vector<std::uint8_t> long_head;
    std::size_t value_bytes = 0;
  };
  struct Run {  // values of a row
    std::size_t begin = 0;
    std::size_t end = 0;

    std::size_t size() const noexcept { return end - begin; }
  };

  void check(const ColumnValues& column) const;
  static Entry entry_of(const ColumnValues& column);
  static Run run_of(const ColumnValues& column, std::size_t row) noexcept;
  std::uint64_t measure_others(std::size_t row, Tile* tile) const;
  static std::uint64_t measure_values(const ColumnValues& column, std::size_t row,
                                      Tile* tile);
  static std::uint8_t* store_values(const ColumnValues& column, Run run,
                                    const std::uint64_t** ints,
                                    std::uint8_t* out) noexcept;
  static bool is_in(const ColumnValues& column, std::size_t row) noexcept {
    return column.present.empty() || column.present[row] != 0;
  }

  std::vector<ColumnValues> columns_;
  std::vector<Entry> entries_;
  std::size_t n_short_ = 0;  // entries of the forms kFloat and kInt
  std::size_t n_rows_;
};

}  // namespace fastrec
