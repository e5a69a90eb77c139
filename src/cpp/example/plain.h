// Plain: the one form in which every known writer writes the parts of an Example.
//
//   entry     0a n key   12 n feature      both, in this order, and nothing else
//   numbers   12|1a n    0a n run          a feature of one kind, packed in one run
//
// with every n in one byte. These functions prove the form or say no; they read no
// other, report no fault, and leave whatever they do not know to walk.h.
#pragma once

#include "base/bytes.h"
#include "batch/schema.h"

namespace fastrec {

inline constexpr std::uint8_t kTagOne = 0x0a;  // field 1, length-delimited
inline constexpr std::uint8_t kTagTwo = 0x12;  // field 2, length-delimited

// Whether `message` is one field of `tag` and nothing else.
inline bool find_plain_field(Bytes message, std::uint8_t tag, Bytes* content) noexcept {
  if (message.size() < 2 || message[0] != tag || message[1] >= 0x80 ||
      message[1] != message.size() - 2) {
    return false;
  }
  *content = message.subspan(2);
  return true;
}

inline bool find_plain_entry(Bytes entry, Bytes* key, Bytes* feature) noexcept {
  if (entry.size() < 4 || entry[0] != kTagOne || entry[1] >= 0x80) return false;
  const std::size_t key_bytes = entry[1];
  if (key_bytes + 4 > entry.size()) return false;
  *key = entry.subspan(2, key_bytes);
  return find_plain_field(entry.subspan(2 + key_bytes), kTagTwo, feature);
}

// The packed run of a feature that holds numbers of `kind`.
inline bool find_plain_run(Bytes feature, FeatureKind kind, Bytes* run) noexcept {
  Bytes list;
  const auto tag = static_cast<std::uint8_t>(static_cast<unsigned>(kind) << 3 | 2);
  return find_plain_field(feature, tag, &list) && find_plain_field(list, kTagOne, run);
}

}  // namespace fastrec
