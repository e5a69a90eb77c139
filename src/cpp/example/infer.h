// Infer: records -> what features they have, how many values, of which kind and range.
//
// A survey says what it saw; which spec follows from that is decided where specs are
// made (src/fastrec/inference.py).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "example/walk.h"

namespace fastrec {

// What was seen of one feature.
struct FeatureSurvey {
  // Records in which the feature had this kind, by FeatureKind. A feature without a
  // kind is missing in TensorFlow's eyes.
  std::uint64_t n_records[4] = {};
  // The first record in which it had this kind, counted from 0 in the survey.
  std::uint64_t first_record[4] = {};
  // Values in a record, where there was a kind.
  std::uint64_t n_values_min = 0, n_values_max = 0;
  std::int64_t int_min = 0, int_max = 0;       // int64 values
  double float_min = 0, float_max = 0;         // float values that are not NaN
  std::uint64_t bytes_min = 0, bytes_max = 0;  // sizes of byte strings
  std::uint64_t n_values = 0;  // in all records; ranges mean nothing at 0

  std::uint64_t n_present() const noexcept {
    return n_records[1] + n_records[2] + n_records[3];
  }
};

class Survey {
 public:
  // Adds what `record` holds. A fault leaves the survey without that record.
  Fault add(Bytes record);

  std::uint64_t n_records() const noexcept { return n_records_; }
  // Records that have a field 2, as tf.train.SequenceExample does and Example does not.
  std::uint64_t n_sequences() const noexcept { return n_sequences_; }
  const std::map<std::string, FeatureSurvey>& features() const noexcept {
    return features_;
  }

 private:
  Fault add_feature(const ValueList& list, FeatureSurvey* survey) const;

  std::uint64_t n_records_ = 0;
  std::uint64_t n_sequences_ = 0;
  std::map<std::string, FeatureSurvey> features_;
  JoinedMessages joined_;
};

}  // namespace fastrec
