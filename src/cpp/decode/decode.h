// Decode: a serialized tf.train.Example, or SequenceExample, -> one row of a batch.
//
// A record of the form that all writers write is left to the fast path (fastpath.h)
// first. What that cannot read, and every record where it is not used, is read by the
// reference, which is here: any record, in one pass over its entries and one over its
// columns. Either way a requested feature follows TensorFlow's rules (defaults, counts,
// kinds, missing against empty); the values of features that nobody asked for are
// stepped over and not looked at. Nothing is allocated in proportion to a number in the
// record, only to its bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "decode/fastpath.h"
#include "decode/feature_decoder.h"
#include "decode/mapped_path.h"
#include "decode/rules.h"
#include "wire/key_table.h"

namespace fastrec {

// The keys that the columns of a schema read: those of its feature lists, or all
// others.
class ColumnKeys {
 public:
  ColumnKeys(const Schema& schema, bool of_lists);

  const KeyTable& table() const noexcept { return table_; }
  // The number of the key that `column` reads, which must be one of these.
  std::size_t key_of(std::size_t column) const noexcept { return key_of_[column]; }

 private:
  KeyTable table_;
  std::vector<std::uint32_t> key_of_;
};

class ExampleDecoder {
 public:
  explicit ExampleDecoder(std::shared_ptr<const Schema> schema, Way way = Way::kFast);

  // Decodes `record` into row `row` of `batch`. After a fault, the batch can only be
  // begun anew. Offsets of faults count from the beginning of the record.
  Fault decode(BytesWithSlack record, std::size_t row, BatchBuilder* batch);

  // The same for a large frame in mapped memory, which may change meanwhile: verifies
  // it while it is decoded. False if nothing is known about it, because it must be read
  // by way of private memory. Row `row` is empty then.
  bool decode_mapped(Bytes frame, std::size_t row, BatchBuilder* batch);

  // What is wrong, without the place: also for faults of the schema.
  std::string describe(const Fault& fault) const;

  const Schema& schema() const noexcept { return *schema_; }

 private:
  Fault walk(Bytes record);

  std::shared_ptr<const Schema> schema_;
  FeatureDecoder decoder_;
  ColumnKeys keys_, list_keys_;
  // Of the record at hand, by number of key.
  std::vector<Bytes> features_, lists_;
  bool reads_features_;  // or only records as they are
  bool reads_example_;   // a feature of a record that must not be a SequenceExample
  Way way_;
  bool can_be_fast_;  // by the fast path
  std::unique_ptr<FastPath> fast_path_;
  std::optional<MappedPath> mapped_path_;
  StepPlaces step_places_;
};

}  // namespace fastrec
