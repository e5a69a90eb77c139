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
#include "decode/rules.h"

namespace fastrec {

// Which key is whose: the distinct keys of the columns of a schema that are in feature
// lists, or of those that are not, in an open-addressing table.
class KeyTable {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  KeyTable(const Schema& schema, bool of_lists);

  std::size_t n_keys() const noexcept { return keys_.size(); }
  // The number of the key that column `column` reads, which has one in this table.
  std::size_t key_of(std::size_t column) const noexcept { return key_of_[column]; }

  // The number of `key`, or kNone. `guess` is tried first: records tend to repeat the
  // order of their features.
  std::size_t find(Bytes key, std::size_t guess) const noexcept {
    return guess < keys_.size() && is_key(guess, key) ? guess : find_by_hash(key);
  }

 private:
  bool is_key(std::size_t number, Bytes key) const noexcept {
    const std::string& own = keys_[number];
    return own.size() == key.size() &&
           same_bytes(as_bytes(own).data(), key.data(), key.size());
  }
  std::size_t find_by_hash(Bytes key) const noexcept;
  std::size_t slot_of(Bytes key) const noexcept;

  std::vector<std::string> keys_;
  std::vector<std::size_t> key_of_;
  std::vector<std::size_t> slots_;  // numbers of keys, or kNone; a power of two of them
};

class ExampleDecoder {
 public:
  explicit ExampleDecoder(std::shared_ptr<const Schema> schema, Way way = Way::kFast);

  // Decodes `record` into row `row` of `batch`. After a fault, the batch can only be
  // begun anew. Offsets of faults count from the beginning of the record.
  Fault decode(BytesWithSlack record, std::size_t row, BatchBuilder* batch);

  // What is wrong, without the place: also for faults of the schema.
  std::string describe(const Fault& fault) const;

  const Schema& schema() const noexcept { return *schema_; }

 private:
  Fault walk(Bytes record);

  std::shared_ptr<const Schema> schema_;
  FeatureDecoder decoder_;
  KeyTable keys_, list_keys_;
  // Of the record at hand, by number of key.
  std::vector<Bytes> features_, lists_;
  bool reads_features_;  // or only records as they are
  bool reads_example_;   // a feature of a record that must not be a SequenceExample
  Way way_;
  bool can_be_fast_;  // by the fast path
  std::optional<FastPath> fast_path_;
  StepPlaces step_places_;
};

}  // namespace fastrec
