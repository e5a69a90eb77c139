// Encode: the features of one row -> a serialized tf.train.Example.
//
//   Example   { 1: Features }
//   Features  { 1: entry, 1: entry, ... }        in the order given
//   entry     { 1: key, 2: Feature }             key first
//   Feature   { 1: BytesList | 2: FloatList | 3: Int64List }
//   list      { 1: one packed run of numbers, or one byte string after another }
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
// `kind` (never kNone) counts.
struct FeatureValues {
  Bytes key;
  FeatureKind kind = FeatureKind::kNone;
  std::span<const Bytes> strings;
  std::span<const float> floats;
  std::span<const std::int64_t> ints;
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

  // Both, at the end of `*out`, which is untouched if anything is thrown.
  void append(std::span<const FeatureValues> features, std::vector<std::uint8_t>* out);

 private:
  std::vector<std::uint64_t>
      value_bytes_;  // of each feature, before the list's framing
  std::uint64_t features_bytes_ = 0;
};

}  // namespace fastrec
