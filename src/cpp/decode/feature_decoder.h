// FeatureDecoder: one feature of a record -> its row in a column.
//
// Reads a feature in any valid encoding, and follows TensorFlow's rules for defaults,
// counts, kinds, and missing or empty features. Memory is allocated in proportion to
// the bytes of a record, never to a number in it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "decode/tensor.h"
#include "wire/walk.h"

namespace fastrec {

class FeatureDecoder {
 public:
  explicit FeatureDecoder(std::shared_ptr<const Schema> schema)
      : schema_(std::move(schema)) {}

  // Begins a record, and frees the joined messages of the previous one.
  void begin() { joined_.clear(); }
  JoinedMessages* joined() noexcept { return &joined_; }

  // Decodes `feature`, which has slack (BytesWithSlack), into row `row` of `column`.
  // The offset of a fault is in `feature`. Tries the plain form (wire/plain.h) first.
  Fault decode(std::size_t column, Bytes feature, std::size_t row,
               BatchBuilder* batch) {
    return decode_plain(column, feature, row, batch)
               ? Fault()
               : decode_any(column, feature, row, batch);
  }

  // The same without the shortcut for the plain form.
  Fault decode_any(std::size_t column, Bytes feature, std::size_t row,
                   BatchBuilder* batch);

  // Fills row `row` of `column`, whose feature is missing.
  Fault fill_missing(std::size_t column, std::size_t row, BatchBuilder* batch) const;

 private:
  bool decode_plain(std::size_t column, Bytes feature, std::size_t row,
                    BatchBuilder* batch) const;
  Fault decode_items(std::size_t column, const ValueList& list, std::size_t n,
                     BatchBuilder* batch) const;
  Fault decode_strings(std::size_t column, Bytes list, BatchBuilder* batch) const;
  Fault decode_tensor(std::size_t column, const ValueList& list, std::size_t n,
                      std::size_t row, BatchBuilder* batch);
  Fault fill_unset(std::size_t column, std::size_t row, BatchBuilder* batch) const;

  std::shared_ptr<const Schema> schema_;
  JoinedMessages joined_;
  TensorReader tensor_;
  std::vector<std::uint8_t> serialized_tensor_;  // see serialize()
};

// Appends `list`, which has slack (BytesWithSlack), as the next row of a ragged or padded
// column. False, without an effect, if the list does not have the plain form
// (wire/plain.h) or does not fit the column.
bool append_plain_row(const ColumnSpec& spec, std::size_t column, Bytes list,
                      BatchBuilder* batch);

}  // namespace fastrec
