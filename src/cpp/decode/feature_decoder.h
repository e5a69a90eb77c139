// FeatureDecoder: one feature of a record -> its row in a column.
//
// It reads a feature in whatever form it is, and follows TensorFlow's rules for what it
// means: defaults, counts, kinds, missing against empty. Nothing is allocated in
// proportion to a number in the record, only to its bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "decode/tensor.h"
#include "wire/walk.h"

namespace fastrec {

// How records are read. What comes out is the same.
enum class Way : std::uint8_t {
  kFast,       // the plain form (wire/plain.h) sooner than others
  kReference,  // every form in the one way that reads them all
};

class FeatureDecoder {
 public:
  FeatureDecoder(std::shared_ptr<const Schema> schema, Way way)
      : schema_(std::move(schema)), way_(way) {}

  // Begins a record. Messages that were joined for the one before are gone.
  void begin() { joined_.clear(); }
  JoinedMessages* joined() noexcept { return &joined_; }

  // Decodes `feature`, which has slack (BytesWithSlack), into row `row` of `column`.
  // The offset of a fault counts from the beginning of `feature`.
  Fault decode(std::size_t column, Bytes feature, std::size_t row, BatchBuilder* batch);

  // Fills row `row` of `column`, whose feature is not there.
  Fault fill_missing(std::size_t column, std::size_t row, BatchBuilder* batch) const;

  // What is wrong with a column, without the place.
  std::string describe(const Fault& fault) const;

 private:
  bool decode_plain(const ColumnSpec& spec, std::size_t column, Bytes feature,
                    std::size_t row, BatchBuilder* batch) const;
  bool decode_plain_row(const ColumnSpec& spec, std::size_t column, Bytes feature,
                        BatchBuilder* batch) const;
  Fault decode_items(std::size_t column, const ValueList& list, std::size_t n,
                     BatchBuilder* batch) const;
  Fault decode_strings(std::size_t column, Bytes list, BatchBuilder* batch) const;
  Fault decode_tensor(std::size_t column, const ValueList& list, std::size_t n,
                      std::size_t row, BatchBuilder* batch);
  Fault fill_unset(std::size_t column, std::size_t row, BatchBuilder* batch) const;

  std::shared_ptr<const Schema> schema_;
  Way way_;
  JoinedMessages joined_;
  TensorReader tensor_;
  std::vector<std::uint8_t> tensor_form_;  // of a tensor of any shape and dtype
};

}  // namespace fastrec
