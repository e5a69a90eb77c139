// SequencePath: a SequenceExample in the form that all known writers produce -> one row
// of a batch.
//
// That form is a context and feature lists, in plain entries (wire/plain.h), no requested
// key twice. A record of it is read in one pass: each entry goes straight to its
// columns. The key that followed an entry in the previous record is expected behind it
// again, and proven by comparison; any other key is looked up. Steps of the plain form
// are read in tight loops.
//
// This path never guesses: ExampleDecoder decodes the records that it cannot prove, and
// reports all faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "decode/back_off.h"
#include "decode/feature_decoder.h"
#include "wire/key_table.h"

namespace fastrec {

class SequencePath {
 public:
  // Whether records can be read this way: only if columns can be filled in any order,
  // and some column reads a feature list.
  static bool can_read(const Schema& schema);

  // `schema` must outlive this.
  explicit SequencePath(const Schema& schema);

  // Decodes `record` into row `row` of `batch`. Returns false if the record cannot be
  // proven, or is not tried because earlier ones could not; then rewind the row.
  bool decode(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
              BatchBuilder* batch);

 private:
  // The requested keys of the context or of the feature lists.
  struct Map {
    KeyTable keys;
    // By key number: the columns that read the key, and the last record that had it.
    std::vector<std::vector<std::uint32_t>> columns;
    std::vector<std::uint64_t> marks;
    // The key that followed another one in the last record; first the one that began.
    std::vector<std::uint32_t> followers{KeyTable::kNone};
  };

  template <typename OnValue>
  bool read_entries(Bytes entries, Map* map, OnValue&& on_value);
  bool read(Bytes record, std::size_t row, FeatureDecoder* decoder,
            BatchBuilder* batch);

  const Schema& schema_;
  Map context_, lists_;
  std::vector<std::uint32_t> record_columns_;  // of the serialized record
  std::uint64_t n_records_ = 0;
  std::size_t n_found_ = 0;  // requested keys of the record so far
  BackOff back_off_;
};

}  // namespace fastrec
