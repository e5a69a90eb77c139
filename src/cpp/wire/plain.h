// Plain: the encoding of an Example that every known writer produces.
//
//   entry     0a n key   12 n feature      both, in this order, and nothing else
//   numbers   12|1a n    0a n run          a feature with one packed run
//   string    0a n       0a n string       a feature with one byte string
//   number    12|1a n    0d|08 number      a feature with one unpacked number
//
// These functions read plain encodings only and report no faults. walk.h reads all
// others.
#pragma once

#include "base/bytes.h"
#include "wire/kind.h"

namespace fastrec {

inline constexpr std::uint8_t kTagOne = 0x0a;  // field 1, length-delimited
inline constexpr std::uint8_t kTagTwo = 0x12;  // field 2, length-delimited

// Reads a length of at most 5 bytes at `p`. Returns its end, or nullptr if it is longer
// or truncated.
inline const std::uint8_t* read_length(const std::uint8_t* p, const std::uint8_t* end,
                                       std::uint64_t* length) noexcept {
  constexpr int kMaxLengthBytes = 5;
  *length = 0;
  for (int i = 0; i < kMaxLengthBytes && p != end; ++i) {
    const std::uint8_t byte = *p++;
    *length |= std::uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) return p;
  }
  return nullptr;
}

// Reads the field with `tag` at `p`. Returns its end, or nullptr.
inline const std::uint8_t* read_plain_field(const std::uint8_t* p,
                                            const std::uint8_t* end, std::uint8_t tag,
                                            Bytes* content) noexcept {
  if (p == end || *p != tag) return nullptr;
  std::uint64_t length;
  p = read_length(p + 1, end, &length);
  if (p == nullptr || length > static_cast<std::uint64_t>(end - p)) return nullptr;
  *content = {p, static_cast<std::size_t>(length)};
  return p + length;
}

// Whether `message` is exactly one field with `tag`.
inline bool find_plain_field(Bytes message, std::uint8_t tag, Bytes* content) noexcept {
  const std::uint8_t* const end = message.data() + message.size();
  return read_plain_field(message.data(), end, tag, content) == end && !message.empty();
}

inline bool find_plain_entry(Bytes entry, Bytes* key, Bytes* feature) noexcept {
  const std::uint8_t* const end = entry.data() + entry.size();
  const std::uint8_t* p = read_plain_field(entry.data(), end, kTagOne, key);
  return p != nullptr && read_plain_field(p, end, kTagTwo, feature) == end;
}

// Reads the entry at `p`. Returns its end, or nullptr.
inline const std::uint8_t* read_plain_entry(const std::uint8_t* p,
                                            const std::uint8_t* end, Bytes* key,
                                            Bytes* feature) noexcept {
  Bytes entry;
  p = read_plain_field(p, end, kTagOne, &entry);
  return p != nullptr && find_plain_entry(entry, key, feature) ? p : nullptr;
}

// Whether `feature` is exactly one list of `kind`.
inline bool find_plain_list(Bytes feature, FeatureKind kind, Bytes* list) noexcept {
  const auto tag = static_cast<std::uint8_t>(static_cast<unsigned>(kind) << 3 | 2);
  return find_plain_field(feature, tag, list);
}

// Whether `list` starts with an unpacked number of `kind`. The caller must check that
// `*number`, the rest of the list, is exactly one number.
inline bool find_lone_number(Bytes list, FeatureKind kind, Bytes* number) noexcept {
  constexpr std::uint8_t kTagVarint = 0x08;   // field 1, as a varint
  constexpr std::uint8_t kTagFixed32 = 0x0d;  // field 1, in 4 bytes
  const std::uint8_t tag = kind == FeatureKind::kInt64 ? kTagVarint : kTagFixed32;
  if (kind == FeatureKind::kBytes || list.empty() || list[0] != tag) return false;
  *number = list.subspan(1);
  return true;
}

}  // namespace fastrec
