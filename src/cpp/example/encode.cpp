#include "example/encode.h"

#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

#include "record/framing.h"

namespace fastrec {
namespace {

// A tag is the number of a field and its wire type; all fields of an Example are
// length-delimited, and their tags fit one byte.
constexpr std::uint8_t tag_of(unsigned field) {
  return static_cast<std::uint8_t>(field << 3 | 2);
}

constexpr std::uint64_t varint_size(std::uint64_t value) noexcept {
  // bits / 7, rounded up, for 1 to 64 bits and without a division.
  return (static_cast<unsigned>(std::bit_width(value | 1)) * 9 + 64) / 64;
}

constexpr std::uint64_t field_size(std::uint64_t content) noexcept {
  return 1 + varint_size(content) + content;
}

std::uint8_t* store_varint(std::uint64_t value, std::uint8_t* out) noexcept {
  while (value >= 0x80) {
    *out++ = static_cast<std::uint8_t>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<std::uint8_t>(value);
  return out;
}

std::uint8_t* open_field(unsigned field, std::uint64_t content,
                         std::uint8_t* out) noexcept {
  *out++ = tag_of(field);
  return store_varint(content, out);
}

std::uint8_t* store_raw(const void* data, std::size_t size,
                        std::uint8_t* out) noexcept {
  if (size != 0) std::memcpy(out, data, size);  // `data` may be null if it is empty
  return out + size;
}

std::uint8_t* store_string(unsigned field, Bytes bytes, std::uint8_t* out) noexcept {
  out = open_field(field, bytes.size(), out);
  return store_raw(bytes.data(), bytes.size(), out);
}

// Of the values alone: without the tag and length that a packed run has.
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

std::uint64_t entry_size(const FeatureValues& feature, std::uint64_t values) noexcept {
  const std::uint64_t list = field_size(list_size(feature.kind, values));
  return field_size(feature.key.size()) + field_size(list);
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
      if constexpr (std::endian::native == std::endian::little) {
        out = store_raw(feature.floats.data(), feature.floats.size_bytes(), out);
      } else {
        for (const float value : feature.floats) {
          store_le(out, std::bit_cast<std::uint32_t>(value));
          out += sizeof value;
        }
      }
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

}  // namespace

std::uint64_t ExampleEncoder::measure(std::span<const FeatureValues> features) {
  value_bytes_.clear();
  features_bytes_ = 0;
  for (const FeatureValues& feature : features) {
    value_bytes_.push_back(value_bytes(feature));
    features_bytes_ += field_size(entry_size(feature, value_bytes_.back()));
  }
  const std::uint64_t size = field_size(features_bytes_);
  if (size > kMaxPayloadBytes) {
    throw std::length_error("an example of " + std::to_string(size) +
                            " bytes is too large: protobuf reads at most " +
                            std::to_string(kMaxPayloadBytes));
  }
  return size;
}

void ExampleEncoder::store(std::span<const FeatureValues> features,
                           std::uint8_t* out) const noexcept {
  out = open_field(1, features_bytes_, out);
  for (std::size_t i = 0; i < features.size(); ++i) {
    const FeatureValues& feature = features[i];
    const std::uint64_t list = list_size(feature.kind, value_bytes_[i]);
    out = open_field(1, entry_size(feature, value_bytes_[i]), out);
    out = store_string(1, feature.key, out);
    out = open_field(2, field_size(list), out);
    out = open_field(static_cast<unsigned>(feature.kind), list, out);
    out = store_list(feature, value_bytes_[i], out);
  }
}

void ExampleEncoder::append(std::span<const FeatureValues> features,
                            std::vector<std::uint8_t>* out) {
  const std::uint64_t size = measure(features);
  const std::size_t begin = out->size();
  out->resize(begin + size);
  store(features, out->data() + begin);
}

}  // namespace fastrec
