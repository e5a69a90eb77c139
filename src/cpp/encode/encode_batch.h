// EncodeBatch: columns of values -> a serialized tf.train.Example for each row.
//
//   fixed     values[row][n_values]
//   ragged    values[row_splits[row] .. row_splits[row + 1]]
//   strings   fixed or ragged; string i is data[offsets[i] .. offsets[i + 1]], or
//             data[i * string_bytes ..] if all strings have the same size
//
// Features come in the order of the columns, in the form that encode/encode.h draws, so
// all records of a batch have one order, and the headers of entries are made once.
//
// The columns may change while they are read. That gives values of before or after, but
// never a message of another size than was measured: what sizes depend on is read once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
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

  // The same columns with other values, one for each column, of which none has
  // row_splits, offsets or absent rows. Throws as the constructor does.
  BatchEncoder with_values(std::span<const Bytes> values, std::size_t n_rows) const;

  std::size_t n_rows() const noexcept { return n_rows_; }

  // Rows that are being encoded; each thread has its own.
  class Tile {
   public:
    static constexpr std::size_t kMaxRows = 32;

    std::size_t n_rows() const noexcept { return n_rows_; }

   private:
    friend class BatchEncoder;

    std::size_t row(std::size_t i) const noexcept { return begin_ + i * step_; }

    std::size_t begin_ = 0;
    std::size_t step_ = 1;
    std::size_t n_rows_ = 0;
    // The bytes of each row in columns of the form kNumber.
    std::array<std::uint32_t, kMaxRows> number_bytes_;
    // Their values as they are stored, column by column, and their sizes: 0 for an
    // absent feature.
    std::vector<std::uint64_t> words_;
    std::vector<std::uint8_t> word_sizes_;
    // Of the row that was measured last: the bytes of the values in columns of the form
    // kAny, and the varints of the integers in them.
    std::vector<std::uint64_t> sizes_;
    std::vector<std::uint8_t> varints_;
    std::size_t varint_bytes_ = 0;
    std::uint64_t features_bytes_ = 0;
  };

  // The mean size of the Examples of some rows, or 0 without rows.
  std::uint64_t row_bytes() const;

  // Reads rows `begin`, `begin + step`, ... below `end`, as many as fit, one column
  // after another: one kernel reads the values of all rows, and columns whose addresses
  // are alike do not evict each other from the cache.
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
      kNumber,    // one number, after a header of at most kShortBytes
      kConstant,  // header and values have one size in all rows
      kAny,
    };
    Form form = Form::kAny;
    // kNumber: the header of a value of no bytes, and 0xff where its size is added.
    std::uint8_t head_size = 0;
    std::array<std::uint8_t, kShortBytes> head = {};
    std::array<std::uint8_t, kShortBytes> lengths = {};
    // kConstant: the header, and the size of the values.
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
  static void load_numbers(const ColumnValues& column, std::uint64_t* words,
                           std::uint8_t* sizes, Tile* tile);
  std::uint64_t measure_others(std::size_t row, Tile* tile) const;
  static std::uint64_t measure_values(const ColumnValues& column, std::size_t row,
                                      Tile* tile);
  static std::uint8_t* store_number(const Entry& entry, std::uint64_t word,
                                    std::size_t size, std::uint8_t* out) noexcept;
  static bool is_in(const ColumnValues& column, std::size_t row) noexcept {
    return column.present.empty() || column.present[row] != 0;
  }

  std::vector<ColumnValues> columns_;
  std::vector<Entry> entries_;
  std::size_t n_numbers_ = 0;       // entries of the form kNumber
  std::uint32_t number_heads_ = 0;  // their headers, in bytes
  std::size_t n_rows_;
};

}  // namespace fastrec
