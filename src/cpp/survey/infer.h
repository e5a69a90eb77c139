// Infer: records -> statistics of their features: kinds, counts and ranges of values.
//
// src/fastrec/features/infer.py derives specs from a survey.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "survey/format.h"
#include "survey/guess.h"
#include "survey/image_size.h"
#include "wire/walk.h"

namespace fastrec {

// Statistics of one feature, or of the steps of one feature list.
struct FeatureSurvey {
  // The number of records (or steps) by FeatureKind. TensorFlow treats a feature
  // without a kind as missing.
  std::uint64_t n_of_kind[4] = {};
  // Values per record or step with a kind.
  std::uint64_t n_values_min = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t n_values_max = 0;
  std::uint64_t n_values = 0;  // in total
  std::uint64_t n_ranged = 0;  // all values but NaNs: those in the ranges below

  // Ranges, empty until the first value.
  std::int64_t int_min = std::numeric_limits<std::int64_t>::max();
  std::int64_t int_max = std::numeric_limits<std::int64_t>::min();
  double float_min = std::numeric_limits<double>::infinity();
  double float_max = -std::numeric_limits<double>::infinity();
  std::uint64_t bytes_min = std::numeric_limits<std::uint64_t>::max();  // sizes
  std::uint64_t bytes_max = 0;
  ByteFormat format = ByteFormat::kNone;  // of all byte strings
  // Of images whose header has a size.
  std::uint64_t n_images = 0;
  ImageSize image_min = {std::numeric_limits<std::uint32_t>::max(),
                         std::numeric_limits<std::uint32_t>::max(), 4, 16};
  ImageSize image_max = {0, 0, 1, 8};
  // Of byte strings that are the only value in their record.
  ArrayGuess arrays;
  TensorGuess tensors;

  std::uint64_t n_present() const noexcept {
    return n_of_kind[1] + n_of_kind[2] + n_of_kind[3];
  }
  void widen_images(ImageSize min, ImageSize max);
  void merge(const FeatureSurvey& other);
};

// Statistics of one feature list.
struct ListSurvey {
  std::uint64_t n_records = 0;  // that have it
  // Steps per record.
  std::uint64_t n_steps_min = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t n_steps_max = 0;
  FeatureSurvey steps;

  void merge(const ListSurvey& other);
};

class Survey {
 public:
  // More than `features_max` features or feature lists are a fault: a hostile record
  // may hold one in every few bytes.
  explicit Survey(std::size_t features_max) : features_max_(features_max) {}

  // What the first record without features looks like, if it is neither an Example nor
  // a SequenceExample; otherwise "".
  const std::string& foreign() const noexcept { return foreign_; }

  // Adds `record`. A fault, whose offset is in the record, leaves the survey unchanged.
  // A field 2 that is not valid feature lists counts as an unknown field of an Example.
  Fault add(Bytes record);

  std::uint64_t n_records() const noexcept { return n_records_; }
  // Records with feature lists, even an empty map: tf.train.SequenceExamples. Their
  // context counts as features.
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
  std::string foreign_;
  JoinedMessages joined_;
};

}  // namespace fastrec
