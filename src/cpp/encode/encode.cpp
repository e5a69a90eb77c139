#include "encode/encode.h"

#include <stdexcept>
#include <string>

#include "record/framing.h"
#include "wire/entry.h"

namespace fastrec {
namespace {

// The size of the values alone, without the tag and length of a packed run.
std::uint64_t value_bytes(const FeatureValues& feature) noexcept {
  std::uint64_t size = 0;
  switch (feature.kind) {
    case FeatureKind::kBytes:
      for (const Bytes string : feature.strings) size += field_size(string.size());
      break;
    case FeatureKind::kFloat:
      size = feature.floats.size_bytes();
      break;
    case FeatureKind::kInt64:
      for (const std::int64_t value : feature.ints) {
        size += varint_size(static_cast<std::uint64_t>(value));
      }
      break;
    case FeatureKind::kNone:
      break;
  }
  return size;
}

std::uint8_t* store_feature(const FeatureValues& feature, std::uint64_t values,
                            std::uint8_t* out) noexcept {
  out = open_feature(feature.kind, values, out);
  switch (feature.kind) {
    case FeatureKind::kBytes:
      for (const Bytes string : feature.strings) out = store_string(1, string, out);
      break;
    case FeatureKind::kFloat:
      out = store_raw(feature.floats.data(), feature.floats.size_bytes(), out);
      break;
    case FeatureKind::kInt64:
      for (const std::int64_t value : feature.ints) {
        out = store_varint(static_cast<std::uint64_t>(value), out);
      }
      break;
    case FeatureKind::kNone:
      break;
  }
  return out;
}

}  // namespace

// The size of `feature` as a message, whose values are measured now.
std::uint64_t ExampleEncoder::measure_feature(const FeatureValues& feature) {
  value_bytes_.push_back(value_bytes(feature));
  return feature_size(feature.kind, value_bytes_.back());
}

std::uint64_t ExampleEncoder::measure(
    std::span<const FeatureValues> features,
    std::optional<std::span<const FeatureListValues>> lists) {
  features_ = features;
  lists_ = lists;
  value_bytes_.clear();
  list_bytes_.clear();
  features_bytes_ = 0;
  for (const FeatureValues& feature : features) {
    features_bytes_ +=
        field_size(entry_size(feature.key.size(), measure_feature(feature)));
  }
  std::uint64_t size = field_size(features_bytes_);
  if (lists) {
    lists_bytes_ = 0;
    for (const FeatureListValues& list : *lists) {
      list_bytes_.push_back(0);
      for (const FeatureValues& step : list.steps) {
        list_bytes_.back() += field_size(measure_feature(step));
      }
      lists_bytes_ += field_size(entry_size(list.key.size(), list_bytes_.back()));
    }
    size += field_size(lists_bytes_);
  }
  if (size > kMaxPayloadBytes) {
    throw std::length_error(
        "an example must have at most " + std::to_string(kMaxPayloadBytes) +
        " bytes, the limit of protobuf, got " + std::to_string(size));
  }
  return size;
}

void ExampleEncoder::store(std::uint8_t* out) const noexcept {
  const std::uint64_t* values = value_bytes_.data();
  out = open_field(1, features_bytes_, out);
  for (const FeatureValues& feature : features_) {
    out = open_entry(feature.key, feature_size(feature.kind, *values), out);
    out = store_feature(feature, *values++, out);
  }
  if (!lists_) return;
  out = open_field(2, lists_bytes_, out);
  const std::uint64_t* list_bytes = list_bytes_.data();
  for (const FeatureListValues& list : *lists_) {
    out = open_entry(list.key, *list_bytes++, out);
    for (const FeatureValues& step : list.steps) {
      out = open_field(1, feature_size(step.kind, *values), out);
      out = store_feature(step, *values++, out);
    }
  }
}

}  // namespace fastrec
