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
// Every length stands before what it measures, so all sizes are computed first and the
// bytes are then stored in one pass, front to back. Varints and lengths take no more
// bytes than they need. An empty list has its kind and no values.
//
// This module does not check that keys are UTF-8 or differ from each other.
//
// Source: tensorflow/core/example/{example,feature}.proto and
// https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "batch/schema.h"

namespace fastrec {

// One feature of a row: views of what the caller holds. Of the three lists, the one of
// `kind` counts.
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

// Keeps its scratch memory from row to row.
class ExampleEncoder {
 public:
  // The size in bytes of the Example of `features`. Throws std::length_error if
  // protobuf could not read it because it has 2 GiB or more.
  std::uint64_t measure(std::span<const FeatureValues> features);

  // Stores the Example that was measured last to `out`, which has room for it. Integers
  // must be what they were when they were measured: their size depends on their value.
  void store(std::span<const FeatureValues> features, std::uint8_t* out) const noexcept;

  // The same for a SequenceExample.
  std::uint64_t measure(std::span<const FeatureValues> context,
                        std::span<const FeatureListValues> lists);
  void store(std::span<const FeatureValues> context,
             std::span<const FeatureListValues> lists,
             std::uint8_t* out) const noexcept;

 private:
  std::uint64_t measure_features(std::span<const FeatureValues> features);
  static std::uint8_t* store_features(std::span<const FeatureValues> features,
                                      const std::uint64_t* value_bytes,
                                      std::uint8_t* out) noexcept;

  // Of each feature and step, before the list's framing.
  std::vector<std::uint64_t> value_bytes_;
  std::vector<std::uint64_t> list_bytes_;
  std::uint64_t features_bytes_ = 0;
  std::uint64_t lists_bytes_ = 0;
};

}  // namespace fastrec
