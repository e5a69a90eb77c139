#include "decode/tensor.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "wire/field_reader.h"
#include "wire/varint.h"

namespace fastrec {

// How a dtype stores values outside of tensor_content.
struct TensorReader::Kind {
  std::uint32_t dtype;
  std::uint32_t field;  // of the list
  WireType type;        // of a part of a value
  std::uint8_t part_bytes;
  std::uint8_t n_parts;   // 2 for complex dtypes
  std::int64_t min, max;  // of varints
};

const TensorReader::Kind* TensorReader::find_kind(std::uint32_t dtype) noexcept {
  constexpr auto kVarint = WireType::kVarint;
  constexpr auto kFixed32 = WireType::kFixed32;
  constexpr auto kFixed64 = WireType::kFixed64;
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  static constexpr Kind kKinds[] = {
      {1, 5, kFixed32, 4, 1, 0, 0},                 // float32
      {2, 6, kFixed64, 8, 1, 0, 0},                 // float64
      {3, 7, kVarint, 4, 1, INT32_MIN, INT32_MAX},  // int32
      {4, 7, kVarint, 1, 1, 0, UINT8_MAX},          // uint8
      {5, 7, kVarint, 2, 1, INT16_MIN, INT16_MAX},  // int16
      {6, 7, kVarint, 1, 1, INT8_MIN, INT8_MAX},    // int8
      {kString, 8, WireType::kLengthDelimited, 0, 1, 0, 0},
      {8, 9, kFixed32, 4, 2, 0, 0},            // complex64
      {9, 10, kVarint, 8, 1, kMin, kMax},      // int64
      {10, 11, kVarint, 1, 1, 0, 1},           // bool
      {14, 13, kVarint, 2, 1, 0, UINT16_MAX},  // bfloat16, as its bits
      {17, 7, kVarint, 2, 1, 0, UINT16_MAX},   // uint16
      {18, 12, kFixed64, 8, 2, 0, 0},          // complex128
      {19, 13, kVarint, 2, 1, 0, UINT16_MAX},  // float16, as its bits
      {22, 16, kVarint, 4, 1, 0, UINT32_MAX},  // uint32
      {23, 17, kVarint, 8, 1, kMin, kMax},     // uint64
  };
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const Kind& k) { return k.dtype == dtype; });
  return found == std::end(kKinds) ? nullptr : found;
}

namespace {

// The varint of a valid field.
std::uint64_t varint_of(Bytes content) {
  std::uint64_t value = 0;
  Errc errc;
  read_varint(content.data(), content.data() + content.size(), &value, &errc);
  return value;
}

bool is_message(const Field& field, std::uint32_t number) {
  return field.number == number && field.type == WireType::kLengthDelimited;
}

}  // namespace

Fault TensorReader::read_shape(Bytes message) {
  FieldReader fields(message);
  Field field;
  while (fields.next(&field)) {
    if (field.number == 3 && field.type == WireType::kVarint &&
        varint_of(field.content) != 0) {
      return {.code = Errc::kTensorShape};
    }
    if (!is_message(field, 2)) continue;
    std::int64_t size = 0;
    FieldReader parts(field.content);
    Field part;
    while (parts.next(&part)) {
      if (part.number == 1 && part.type == WireType::kVarint) {
        size = static_cast<std::int64_t>(varint_of(part.content));
      }
    }
    if (parts.fault()) return parts.fault();
    if (size < 0) return {.code = Errc::kTensorShape};
    shape_.push_back(size);
  }
  return fields.fault();
}

Fault TensorReader::append_value(Bytes content, const Kind& kind) {
  if (kind.type == WireType::kLengthDelimited) {
    strings_.push_back(content);
    return {};
  }
  if (kind.type != WireType::kVarint) {
    values_.insert(values_.end(), content.begin(), content.end());
    return {};
  }
  const std::uint64_t stored = varint_of(content);
  const auto value = static_cast<std::int64_t>(stored);
  if (value < kind.min || value > kind.max) {
    return {.code = Errc::kValueOutOfRange, .found = stored};
  }
  std::uint8_t bytes[sizeof stored];
  store_le(bytes, stored);
  values_.insert(values_.end(), bytes, bytes + kind.part_bytes);
  return {};
}

// Reads the list of values, packed or not.
Fault TensorReader::read_values(Bytes message, const Kind& kind) {
  FieldReader fields(message);
  Field field;
  while (fields.next(&field)) {
    if (field.number != kind.field) continue;
    if (field.type == kind.type) {
      if (Fault fault = append_value(field.content, kind)) return fault;
    } else if (field.type == WireType::kLengthDelimited) {
      const Bytes run = field.content;
      if (kind.type != WireType::kVarint) {
        if (run.size() % kind.part_bytes != 0) {
          return {.code = Errc::kPackedFloatLength, .found = run.size()};
        }
        values_.insert(values_.end(), run.begin(), run.end());
        continue;
      }
      const std::uint8_t* const end = run.data() + run.size();
      for (const std::uint8_t* p = run.data(); p != end;) {
        std::uint64_t value;
        Errc errc;
        const std::uint8_t* after = read_varint(p, end, &value, &errc);
        if (after == nullptr) return {.code = errc};
        if (Fault fault =
                append_value({p, static_cast<std::size_t>(after - p)}, kind)) {
          return fault;
        }
        p = after;
      }
    }
  }
  return {};
}

// Extends the list to `n_values` by repeating the last value, or with zeros.
Fault TensorReader::repeat_last(const Kind& kind, std::uint64_t n_values) {
  const std::uint64_t value_bytes = std::uint64_t{kind.part_bytes} * kind.n_parts;
  const bool holds_strings = kind.dtype == kString;
  const std::uint64_t n_listed =
      holds_strings ? strings_.size() : values_.size() / value_bytes;
  const bool is_whole = holds_strings || values_.size() % value_bytes == 0;
  if (n_listed > n_values || !is_whole) {
    return {.code = Errc::kValueCount, .found = n_listed, .expected = n_values};
  }
  if (n_listed == n_values) return {};
  const Bytes last = holds_strings && n_listed > 0 ? strings_.back() : Bytes();
  const std::uint64_t cost = holds_strings ? sizeof(Bytes) + last.size() : value_bytes;
  if (n_values - n_listed > kMaxRepeatedBytes / cost) {
    return {.code = Errc::kTensorSize, .found = n_values};
  }
  if (holds_strings) {
    strings_.resize(n_values, last);
    return {};
  }
  std::size_t begin = n_listed == 0 ? 0 : (n_listed - 1) * value_bytes;
  values_.resize(n_values * value_bytes);
  for (std::size_t to = n_listed * value_bytes; n_listed > 0 && to < values_.size();) {
    values_[to++] = values_[begin++];
  }
  return {};
}

Fault TensorReader::read(Bytes message) {
  dtype_ = 0;
  shape_.clear();
  values_.clear();
  strings_.clear();
  content_ = memory_ = {};
  FieldReader fields(message);
  Field field;
  while (fields.next(&field)) {
    if (field.number == 1 && field.type == WireType::kVarint) {
      dtype_ = static_cast<std::uint32_t>(varint_of(field.content));
    } else if (is_message(field, 2)) {
      if (Fault fault = read_shape(field.content)) return fault;
    } else if (is_message(field, 4)) {
      content_ = field.content;
    }
  }
  if (fields.fault()) return fields.fault();
  const Kind* kind = find_kind(dtype_);
  if (kind == nullptr) return {.code = Errc::kTensorType, .found = dtype_};

  constexpr std::uint64_t kMaxValues = std::uint64_t{1} << 40;
  std::uint64_t n_values = 1;
  for (const std::int64_t size : shape_) {
    const auto factor = static_cast<std::uint64_t>(size);
    if (factor != 0 && n_values > kMaxValues / factor) {
      return {.code = Errc::kTensorSize, .found = factor};
    }
    n_values *= factor;
  }
  if (content_.empty() || dtype_ == kString) {
    if (!content_.empty()) return {.code = Errc::kTensorType, .found = dtype_};
    if (Fault fault = read_values(message, *kind)) return fault;
    if (Fault fault = repeat_last(*kind, n_values)) return fault;
    memory_ = values_;
    return {};
  }
  const std::uint64_t n_bytes = n_values * kind->part_bytes * kind->n_parts;
  if (content_.size() != n_bytes) {
    return {.code = Errc::kValueSize, .found = content_.size(), .expected = n_bytes};
  }
  memory_ = content_;
  return {};
}

}  // namespace fastrec
