// Infer: records -> what features they have, how many values, of which kind and range.
//
// A survey says what it saw; which spec follows from that is decided where specs are
// made (src/fastrec/features/infer.py).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "survey/format.h"
#include "survey/guess.h"
#include "wire/walk.h"

namespace fastrec {

// What was seen of one feature of records, or of the steps of one feature list.
struct FeatureSurvey {
  // Records, or steps, in which it had this kind, by FeatureKind. A feature without a
  // kind is missing in TensorFlow's eyes.
  std::uint64_t n_of_kind[4] = {};
  // Values in a record or step, where there was a kind.
  std::uint64_t n_values_min = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t n_values_max = 0;
  std::uint64_t n_values = 0;  // in all of them
  std::uint64_t n_ranged = 0;  // of these, all but NaNs: the ranges are of them

  // Ranges, empty until there is a value.
  std::int64_t int_min = std::numeric_limits<std::int64_t>::max();
  std::int64_t int_max = std::numeric_limits<std::int64_t>::min();
  double float_min = std::numeric_limits<double>::infinity();
  double float_max = -std::numeric_limits<double>::infinity();
  std::uint64_t bytes_min = std::numeric_limits<std::uint64_t>::max();  // sizes
  std::uint64_t bytes_max = 0;
  ByteFormat format = ByteFormat::kNone;  // that all byte strings have
  // Of byte strings that are alone in their record; impossible if any is not.
  ArrayGuess arrays;
  TensorGuess tensors;

  std::uint64_t n_present() const noexcept {
    return n_of_kind[1] + n_of_kind[2] + n_of_kind[3];
  }
  void merge(const FeatureSurvey& other);
};

// What was seen of one feature list.
struct ListSurvey {
  std::uint64_t n_records = 0;  // that have it
  // Steps in one of these.
  std::uint64_t n_steps_min = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t n_steps_max = 0;
  FeatureSurvey steps;

  void merge(const ListSurvey& other);
};

class Survey {
 public:
  // More features than that, or feature lists, are a fault: whoever writes a record can
  // make one of every few bytes.
  explicit Survey(std::size_t features_max) : features_max_(features_max) {}

  // Adds what `record` holds. A fault leaves the survey without that record; its offset
  // counts from the beginning of the record.
  //
  // A field 2 that cannot be read as feature lists is an unknown field of an Example.
  Fault add(Bytes record);

  std::uint64_t n_records() const noexcept { return n_records_; }
  // Records with feature lists, perhaps an empty map: tf.train.SequenceExamples, whose
  // features are their context.
  std::uint64_t n_sequences() const noexcept { return n_sequences_; }
  const std::map<std::string, FeatureSurvey>& features() const noexcept {
    return features_;
  }
  const std::map<std::string, ListSurvey>& lists() const noexcept { return lists_; }

 private:
  std::size_t features_max_;
  std::uint64_t n_records_ = 0;
  std::uint64_t n_sequences_ = 0;
  std::map<std::string, FeatureSurvey> features_;
  std::map<std::string, ListSurvey> lists_;
  JoinedMessages joined_;
};

}  // namespace fastrec
