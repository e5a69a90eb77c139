// Infer: records -> what features they have, how many values, of which kind and range.
//
// A survey says what it saw; which spec follows from that is decided where specs are
// made (src/fastrec/inference.py).
#pragma once

#include <cstdint>
#include <limits>
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
  std::uint64_t n_values = 0;  // in all records
  std::uint64_t n_ranged = 0;  // of these, all but NaNs: the ranges are of them

  // Ranges, empty until there is a value.
  std::int64_t int_min = std::numeric_limits<std::int64_t>::max();
  std::int64_t int_max = std::numeric_limits<std::int64_t>::min();
  double float_min = std::numeric_limits<double>::infinity();
  double float_max = -std::numeric_limits<double>::infinity();
  std::uint64_t bytes_min = std::numeric_limits<std::uint64_t>::max();  // sizes
  std::uint64_t bytes_max = 0;

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
  std::uint64_t n_records_ = 0;
  std::uint64_t n_sequences_ = 0;
  std::map<std::string, FeatureSurvey> features_;
  JoinedMessages joined_;
};

}  // namespace fastrec
