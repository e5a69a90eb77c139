// EncodeBatch: columns of values -> a serialized tf.train.Example for each row.
//
//   fixed     values[row][n_values]
//   ragged    values[row_splits[row] .. row_splits[row + 1]]
//   strings   fixed or ragged; string i is data[offsets[i] .. offsets[i + 1]], or
//             data[i * string_bytes ..] if all strings have the same size
//
// Features are written in the order of the columns, in the format of encode/encode.h.
// All records of a batch have one order, so entry headers are built once per batch.
//
// Another thread may change the columns meanwhile. A record may then hold old or new
// values, but always has the size that was measured: the encoder reads everything that
// sizes depend on only once.
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

// A column to write: a view of the caller's values, and copies of their offsets.
struct ColumnValues {
  std::string key;
  FeatureKind kind = FeatureKind::kInt64;
  Bytes values;              // native int64 or float32, or the bytes of strings
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

  // Returns an encoder of new values for the same columns, none of which has
  // row_splits, offsets or absent rows. Throws like the constructor.
  BatchEncoder with_values(std::span<const Bytes> values, std::size_t n_rows) const;

  std::size_t n_rows() const noexcept { return n_rows_; }

  // A few rows that are being encoded. Each thread has its own tile.
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
    // The size of all kNumber columns in each row.
    std::array<std::uint32_t, kMaxRows> number_bytes_;
    // Their encoded values and sizes, column by column. Size 0: the feature is absent.
    std::vector<std::uint64_t> words_;
    std::vector<std::uint8_t> word_sizes_;
    // For the row that was measured last: the value sizes of kAny columns, and the
    // varints of their integers.
    std::vector<std::uint64_t> sizes_;
    std::vector<std::uint8_t> varints_;
    std::size_t varint_bytes_ = 0;
    std::uint64_t features_bytes_ = 0;
  };

  // The mean size of the Examples of a few sampled rows; 0 without rows.
  std::uint64_t row_bytes() const;

  // Reads rows `begin`, `begin + step`, ... below `end` until the tile is full. Reading
  // column by column lets one kernel convert all rows, and keeps columns at conflicting
  // addresses from evicting each other from the cache.
  void load(std::size_t begin, std::size_t end, std::size_t step, Tile* tile) const;

  // Returns the size of the Example of row `i` of the tile in bytes. Throws
  // std::length_error from 2 GiB on, which protobuf cannot read.
  std::uint64_t measure(std::size_t i, Tile* tile) const;

  // Stores the Example of row `i`, which was measured last. `out` needs room for it and
  // kSlackBytes more.
  void store(std::size_t i, const Tile& tile, std::uint8_t* out) const noexcept;

 private:
  // How to write the feature of a column.
  struct Entry {
    static constexpr std::size_t kShortBytes = 64;

    enum class Form : std::uint8_t {
      kNumber,    // one number per row, and a header of at most kShortBytes
      kConstant,  // header and values have the same size in all rows
      kAny,
    };
    Form form = Form::kAny;
    // kNumber: the header of an empty value, and 0xff at the bytes to add its size to.
    std::uint8_t head_size = 0;
    std::array<std::uint8_t, kShortBytes> head = {};
    std::array<std::uint8_t, kShortBytes> lengths = {};
    // kConstant: the header, and the size of the values.
    std::vector<std::uint8_t> long_head;
    std::size_t value_bytes = 0;
  };

  void check(const ColumnValues& column) const;
  static Entry entry_of(const ColumnValues& column);
  static void load_numbers(const ColumnValues& column, std::uint64_t* words,
                           std::uint8_t* sizes, Tile* tile);
  std::uint64_t measure_variable(std::size_t row, Tile* tile) const;
  static std::uint64_t measure_values(const ColumnValues& column, std::size_t row,
                                      Tile* tile);
  static std::uint8_t* store_number(const Entry& entry, std::uint64_t word,
                                    std::size_t size, std::uint8_t* out) noexcept;

  std::vector<ColumnValues> columns_;
  std::vector<Entry> entries_;
  std::size_t n_numbers_ = 0;       // entries of the form kNumber
  std::uint32_t number_heads_ = 0;  // their headers, in bytes
  std::size_t n_rows_;
};

}  // namespace fastrec
