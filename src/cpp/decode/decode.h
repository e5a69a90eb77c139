// Decode: a serialized tf.train.Example or SequenceExample -> one row of a batch.
//
// The fast paths (fastpath.h, sequence_path.h) first try records in the form that all
// known writers produce. The general decoder in this file reads every other record, in
// one pass over its entries and one over the columns. All follow TensorFlow's rules
// for requested features (defaults, counts, kinds, missing or empty) and skip the
// values of all others. Memory is allocated in proportion to the bytes of a record,
// never to a number in it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "decode/fastpath.h"
#include "decode/feature_decoder.h"
#include "decode/mapped_path.h"
#include "decode/rules.h"
#include "decode/sequence_path.h"
#include "wire/key_table.h"

namespace fastrec {

// The keys that the columns of a schema read: those of feature lists, or all others.
class ColumnKeys {
 public:
  ColumnKeys(const Schema& schema, bool of_lists);

  const KeyTable& table() const noexcept { return table_; }
  // The key number of `column`, which must read one of these keys.
  std::size_t key_of(std::size_t column) const noexcept { return key_of_[column]; }

 private:
  KeyTable table_;
  std::vector<std::uint32_t> key_of_;
};

class ExampleDecoder {
 public:
  explicit ExampleDecoder(std::shared_ptr<const Schema> schema);

  // Decodes `record` into row `row` of `batch`. After a fault, rewind the row or begin
  // a new batch. The offset of a fault is in the record.
  Fault decode(BytesWithSlack record, std::size_t row, BatchBuilder* batch);

  // The same by the general decoder, without a shortcut for records or features of the
  // plain form: the reference for every other way.
  Fault decode_any(BytesWithSlack record, std::size_t row, BatchBuilder* batch);

  // Decodes two records into row `row` and the next one, if that is faster than one at a
  // time. Otherwise returns false and rewinds both rows.
  bool decode_pair(BytesWithSlack first, BytesWithSlack second, std::size_t row,
                   BatchBuilder* batch);

  // Decodes a large frame in mapped memory, which may change meanwhile, and verifies it
  // in the same pass. False if the frame must be copied to private memory first; row
  // `row` is then still empty.
  bool decode_mapped(Bytes frame, std::size_t row, BatchBuilder* batch) {
    return decode_shared(frame, true, row, batch);
  }

  // The same for a large record without a frame, which is not verified.
  bool decode_unframed(Bytes record, std::size_t row, BatchBuilder* batch) {
    return decode_shared(record, false, row, batch);
  }

  // Whether the last record had no requested feature. False if a fast path read it, so
  // that it has the form of an Example or a SequenceExample.
  bool has_found_nothing() const noexcept { return has_found_nothing_; }

  const Schema& schema() const noexcept { return *schema_; }

 private:
  using DecodeFeature = Fault (FeatureDecoder::*)(std::size_t column, Bytes feature,
                                                  std::size_t row, BatchBuilder* batch);

  void begin_record();
  Fault decode_by(DecodeFeature decode_feature, Bytes record, std::size_t row,
                  BatchBuilder* batch);
  Fault walk(Bytes record);
  bool decode_shared(Bytes frame, bool is_framed, std::size_t row, BatchBuilder* batch);

  std::shared_ptr<const Schema> schema_;
  FeatureDecoder decoder_;
  ColumnKeys keys_, list_keys_;
  // Of the current record, by key number.
  std::vector<Bytes> features_, lists_;
  bool has_found_nothing_ = false;
  bool reads_features_ = false;  // not all columns are kRecord
  bool reads_example_ = false;   // some column requires a tf.train.Example
  bool can_be_fast_;             // FastPath and MappedPath support the schema
  std::unique_ptr<FastPath> fast_path_;
  std::optional<SequencePath> sequence_path_;
  std::unique_ptr<MappedPath> mapped_path_;
  StepBegins step_begins_;
};

}  // namespace fastrec
