// CheckColumns: a schema and a record -> proof that its columns are consistent.
//
// For the fuzz targets: an error aborts the process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch/column.h"
#include "both_ways.h"
#include "decode/decode.h"
#include "decode/describe.h"

namespace fastrec::testing {

inline ColumnSpec column_of(std::string key, FeatureKind kind, Layout layout,
                            DType dtype, std::size_t item_bytes) {
  ColumnSpec spec;
  spec.key = std::move(key);
  spec.kind = kind;
  spec.layout = layout;
  spec.dtype = dtype;
  spec.item_bytes = item_bytes;
  return spec;
}

// The same column, with zeros or empty strings as the default.
inline ColumnSpec with_default(ColumnSpec spec) {
  const std::size_t n = spec.has_row_splits() ? 1 : spec.n_values;
  if (spec.dtype == DType::kBytes) {
    spec.default_strings = std::vector<std::string>(n);
  } else {
    spec.default_values = std::vector<std::uint8_t>(n * spec.item_bytes);
  }
  return spec;
}

class CheckColumns {
 public:
  explicit CheckColumns(std::shared_ptr<const Schema> schema)
      : schema_(std::move(schema)),
        decoder_(schema_),
        builder_(schema_, shared_pool()) {}

  // Decodes `record` twice, without slack, so that sanitizers detect every over-read.
  // Returns the fault of the first time. Checks one row in the memory of the builder,
  // or a batch of two rows.
  Fault check(Bytes record, bool is_row) {
    builder_.begin(2);
    const Fault first = decoder_.decode_any(BytesWithSlack(record), 0, &builder_);
    if (first) {
      if (first.offset > record.size()) std::abort();
      if (describe(first, *schema_).empty()) std::abort();
      return first;
    }
    if (is_row) {
      check_row(record);
      return {};
    }
    if (decoder_.decode_any(BytesWithSlack(record), 1, &builder_)) std::abort();
    batch_ = builder_.finish(2, std::move(batch_));
    for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
      const Column& column = batch_.columns[c];
      const ColumnSpec& spec = schema_->columns[c];
      if (spec.slot != 0) continue;  // in the array of the first one
      std::size_t n_items = column.n_values / std::max<std::size_t>(spec.n_values, 1);
      if (spec.layout == Layout::kPadded) {
        if (n_items != 2 * column.width) std::abort();
        n_items = check_in_order(column.row_splits, 3);
        if (n_items > 2 * column.width) std::abort();
      } else if (spec.layout == Layout::kRagged) {
        if (check_in_order(column.row_splits, 3) != n_items) std::abort();
      }
      if (spec.dtype == DType::kBytes)
        check_in_order(column.offsets, column.n_values + 1);
      if (column.n_values % 2 != 0 || n_items % 2 != 0)
        std::abort();  // the rows differ
    }
    return {};
  }

 private:
  // Checks that the only row of a batch is the same in the memory of the builder.
  void check_row(Bytes record) {
    builder_.begin(1);
    if (decoder_.decode_any(BytesWithSlack(record), 0, &builder_)) std::abort();
    in_place_.clear();
    append_content(builder_.finish_row(), 1, *schema_, &in_place_);
    builder_.begin(1);
    if (decoder_.decode_any(BytesWithSlack(record), 0, &builder_)) std::abort();
    batch_ = builder_.finish(1, std::move(batch_));
    finished_.clear();
    append_content(batch_.columns, 1, *schema_, &finished_);
    if (in_place_ != finished_) std::abort();
  }

  // Checks that `n` numbers ascend, and returns the last one.
  static std::uint64_t check_in_order(const Column::Array& array, std::size_t n) {
    std::int64_t before = 0;
    for (std::size_t i = 0; i < n; ++i) {
      std::int64_t value;
      std::memcpy(&value, array.data + i * sizeof value, sizeof value);
      if (value < before || (i == 0 && value != 0)) std::abort();
      before = value;
    }
    return static_cast<std::uint64_t>(before);
  }

  std::shared_ptr<const Schema> schema_;
  ExampleDecoder decoder_;
  BatchBuilder builder_;
  Batch batch_;
  std::vector<std::uint8_t> in_place_, finished_;
};

}  // namespace fastrec::testing
