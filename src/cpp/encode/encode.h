// Encode: the features of one row -> a serialized tf.train.Example or SequenceExample.
//
//   Example           { 1: Features }
//   SequenceExample   { 1: Features, 2: FeatureLists }
//   FeatureLists      { 1: entry, 1: entry, ... }   of key and FeatureList
//   FeatureList       { 1: Feature, 1: Feature, ... }
//
//   Features          { 1: entry, 1: entry, ... }   in the order given
//   entry             { 1: key, 2: Feature }        key first
//   Feature           { 1: BytesList | 2: FloatList | 3: Int64List }
//   BytesList         { 1: string, 1: string, ... }
//   numbers           { 1: one packed run }         of a FloatList or Int64List
//
// A length precedes its contents, so measure() computes all sizes and store() then
// writes front to back in one pass. Varints are minimal. An empty list keeps its kind.
//
// The caller checks that keys are unique, valid UTF-8.
//
// Source: tensorflow/core/example/{example,feature}.proto and
// https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "batch/schema.h"

namespace fastrec {

// One feature of a row, as views of the caller's memory. Only the list of `kind` is
// used.
struct FeatureValues {
  Bytes key;
  FeatureKind kind = FeatureKind::kNone;
  std::span<const Bytes> strings;
  std::span<const float> floats;
  std::span<const std::int64_t> ints;
};

// One feature list of a row; its steps have no keys.
struct FeatureListValues {
  Bytes key;
  std::span<const FeatureValues> steps;
};

// Reuses its scratch memory for every row.
class ExampleEncoder {
 public:
  // Returns the size in bytes of the Example of `features`, or with `lists` of the
  // SequenceExample. Throws std::length_error from 2 GiB on, which protobuf cannot read.
  std::uint64_t measure(
      std::span<const FeatureValues> features,
      std::optional<std::span<const FeatureListValues>> lists = std::nullopt);

  // Stores the record that was measured last. Its features, lists and values must still be in
  // place, and its integers unchanged, because their sizes depend on their values.
  void store(std::uint8_t* out) const noexcept;

 private:
  std::uint64_t measure_feature(const FeatureValues& feature);

  std::span<const FeatureValues> features_;
  std::optional<std::span<const FeatureListValues>> lists_;
  // The values of each feature and step, without the tag and length of the list.
  std::vector<std::uint64_t> value_bytes_;
  std::vector<std::uint64_t> list_bytes_;
  std::uint64_t features_bytes_ = 0;
  std::uint64_t lists_bytes_ = 0;
};

}  // namespace fastrec
