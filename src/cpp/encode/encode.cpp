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

std::uint64_t list_size(FeatureKind kind, std::uint64_t values) noexcept {
  if (kind == FeatureKind::kBytes || values == 0) return values;
  return field_size(values);
}

// The size of the message Feature, which is empty without a kind.
std::uint64_t feature_size(const FeatureValues& feature,
                           std::uint64_t values) noexcept {
  if (feature.kind == FeatureKind::kNone) return 0;
  return field_size(list_size(feature.kind, values));
}

std::uint8_t* store_list(const FeatureValues& feature, std::uint64_t values,
                         std::uint8_t* out) noexcept {
  if (values == 0) return out;
  switch (feature.kind) {
    case FeatureKind::kBytes:
      for (const Bytes string : feature.strings) out = store_string(1, string, out);
      break;
    case FeatureKind::kFloat:
      out = open_field(1, values, out);
      out = store_raw(feature.floats.data(), feature.floats.size_bytes(), out);
      break;
    case FeatureKind::kInt64:
      out = open_field(1, values, out);
      for (const std::int64_t value : feature.ints) {
        out = store_varint(static_cast<std::uint64_t>(value), out);
      }
      break;
    case FeatureKind::kNone:
      break;
  }
  return out;
}

std::uint8_t* store_feature(const FeatureValues& feature, std::uint64_t values,
                            std::uint8_t* out) noexcept {
  if (feature.kind == FeatureKind::kNone) return out;
  out = open_field(static_cast<unsigned>(feature.kind), list_size(feature.kind, values),
                   out);
  return store_list(feature, values, out);
}

std::uint64_t checked_size(std::uint64_t size) {
  if (size > kMaxPayloadBytes) {
    throw std::length_error(
        "an example must have at most " + std::to_string(kMaxPayloadBytes) +
        " bytes, the limit of protobuf, got " + std::to_string(size));
  }
  return size;
}

}  // namespace

std::uint64_t ExampleEncoder::measure_features(
    std::span<const FeatureValues> features) {
  std::uint64_t size = 0;
  for (const FeatureValues& feature : features) {
    value_bytes_.push_back(value_bytes(feature));
    const std::uint64_t message = feature_size(feature, value_bytes_.back());
    size += field_size(entry_size(feature.key.size(), message));
  }
  return size;
}

std::uint8_t* ExampleEncoder::store_features(std::span<const FeatureValues> features,
                                             const std::uint64_t* value_bytes,
                                             std::uint8_t* out) noexcept {
  for (const FeatureValues& feature : features) {
    const std::uint64_t values = *value_bytes++;
    out = open_entry(feature.key, feature_size(feature, values), out);
    out = store_feature(feature, values, out);
  }
  return out;
}

std::uint64_t ExampleEncoder::measure(std::span<const FeatureValues> features) {
  value_bytes_.clear();
  features_bytes_ = measure_features(features);
  return checked_size(field_size(features_bytes_));
}

void ExampleEncoder::store(std::span<const FeatureValues> features,
                           std::uint8_t* out) const noexcept {
  out = open_field(1, features_bytes_, out);
  store_features(features, value_bytes_.data(), out);
}

std::uint64_t ExampleEncoder::measure(std::span<const FeatureValues> context,
                                      std::span<const FeatureListValues> lists) {
  value_bytes_.clear();
  list_bytes_.clear();
  features_bytes_ = measure_features(context);
  lists_bytes_ = 0;
  for (const FeatureListValues& list : lists) {
    std::uint64_t size = 0;
    for (const FeatureValues& step : list.steps) {
      value_bytes_.push_back(value_bytes(step));
      size += field_size(feature_size(step, value_bytes_.back()));
    }
    list_bytes_.push_back(size);
    lists_bytes_ += field_size(entry_size(list.key.size(), size));
  }
  return checked_size(field_size(features_bytes_) + field_size(lists_bytes_));
}

void ExampleEncoder::store(std::span<const FeatureValues> context,
                           std::span<const FeatureListValues> lists,
                           std::uint8_t* out) const noexcept {
  out = open_field(1, features_bytes_, out);
  const std::uint64_t* values = value_bytes_.data();
  out = store_features(context, values, out);
  values += context.size();
  out = open_field(2, lists_bytes_, out);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    out = open_entry(lists[i].key, list_bytes_[i], out);
    for (const FeatureValues& step : lists[i].steps) {
      out = open_field(1, feature_size(step, *values), out);
      out = store_feature(step, *values++, out);
    }
  }
}

}  // namespace fastrec
