// Entry: a key and the size of its values -> the header of a plain entry
// (wire/plain.h).
//
//   0a E  0a n key  12 V  tag L  0a P  payload
//
// The payload is a packed run of numbers or one byte string. If all lengths have one
// byte, E = n + 8 + P, V = 4 + P and L = 2 + P, so the header for any payload is the
// header for an empty one with P added to the four lengths.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "wire/field_writer.h"
#include "wire/kind.h"

namespace fastrec {

// The length E of an entry whose value (a Feature or FeatureList) has `message` bytes.
constexpr std::uint64_t entry_size(std::uint64_t key, std::uint64_t message) noexcept {
  return field_size(key) + field_size(message);
}

// The size of a list with `values` bytes of values; adds the framing of a packed run.
constexpr std::uint64_t list_size(FeatureKind kind, std::uint64_t values) noexcept {
  return kind == FeatureKind::kBytes || values == 0 ? values : field_size(values);
}

// The size of a Feature with `values` bytes of values; it is empty without a kind.
constexpr std::uint64_t feature_size(FeatureKind kind, std::uint64_t values) noexcept {
  return kind == FeatureKind::kNone ? 0 : field_size(list_size(kind, values));
}

// Stores the bytes of a Feature before its values.
inline std::uint8_t* open_feature(FeatureKind kind, std::uint64_t values,
                                  std::uint8_t* out) noexcept {
  if (kind == FeatureKind::kNone) return out;
  out = open_field(static_cast<unsigned>(kind), list_size(kind, values), out);
  return kind == FeatureKind::kBytes || values == 0 ? out : open_field(1, values, out);
}

// Stores the bytes of an entry before its value.
inline std::uint8_t* open_entry(Bytes key, std::uint64_t message,
                                std::uint8_t* out) noexcept {
  out = open_field(1, entry_size(key.size(), message), out);
  out = store_string(1, key, out);
  return open_field(2, message, out);
}

struct EntryHeader {
  std::vector<std::uint8_t> bytes;
  std::array<std::size_t, 4> lengths{};  // offsets of the lengths E, V, L and P
};

// The header of the feature `key` with one run or string of `payload` bytes.
inline EntryHeader entry_header(Bytes key, FeatureKind kind, std::uint64_t payload) {
  const std::uint64_t list = field_size(payload);
  const std::uint64_t feature = field_size(list);
  const std::uint64_t entry = entry_size(key.size(), feature);
  EntryHeader header;
  header.bytes.resize(field_size(entry) - payload);
  std::uint8_t* const begin = header.bytes.data();
  std::uint8_t* out = begin;
  const auto open = [&](std::size_t i, unsigned field, std::uint64_t content) {
    header.lengths[i] = static_cast<std::size_t>(out - begin) + 1;
    out = open_field(field, content, out);
  };
  open(0, 1, entry);
  out = store_string(1, key, out);
  open(1, 2, feature);
  open(2, static_cast<unsigned>(kind), list);
  open(3, 1, payload);
  return header;
}

}  // namespace fastrec
