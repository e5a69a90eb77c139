// Walk: the bytes of a tf.train.Example -> its features and their lists.
//
//   Example   { features: Features = 1 }
//   Features  { feature: map<string, Feature> = 1 }   entries { key = 1, value = 2 }
//   Feature   { oneof: bytes_list = 1 | float_list = 2 | int64_list = 3 }
//   each list { repeated value = 1 }                  numbers packed or not
//
//   SequenceExample { context: Features = 1, feature_lists: FeatureLists = 2 }
//   FeatureLists    { feature_list: map<string, FeatureList> = 1 }
//   FeatureList     { feature: repeated Feature = 1 }
//
// As protobuf defines merging, a message in several pieces is the concatenation of its
// pieces, each of which must be readable by itself. A message in one piece, the normal
// case, is not copied.
//
// Source: tensorflow/core/example/{example,feature}.proto. docs/semantics.md lists the
// results for unusual inputs.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "wire/field_reader.h"
#include "wire/kind.h"
#include "wire/plain.h"

namespace fastrec {

// Memory for the joined messages of one record. They have slack, like records
// (BytesWithSlack).
class JoinedMessages {
 public:
  void clear() {
    if (!messages_.empty()) messages_.clear();
  }

  // Joins the length-delimited fields `number` of `message`, starting at `from`, to
  // `*whole`. Returns a fault if a piece cannot be read; the caller has read `message`
  // itself without a fault.
  Fault join(Bytes message, const std::uint8_t* from, std::uint32_t number,
             Bytes* whole);

 private:
  std::deque<std::vector<std::uint8_t>> messages_;
};

// Rebases the offset of `fault` from `part` to `record`. If the part is absent or was
// joined outside of the record, the offset becomes 0.
Fault located(Fault fault, Bytes part, Bytes record) noexcept;

struct ValueList {
  FeatureKind kind = FeatureKind::kNone;
  Bytes message;  // BytesList, FloatList or Int64List
};

// Calls `on_entry(std::uint32_t number, Bytes key, Bytes value)` for each entry of the
// maps in fields 1 to `kLast` of `record`, in file order. If a key repeats, its last
// entry counts. A `kLast` of 1 visits the features of an Example; 2 also visits the
// feature lists of a SequenceExample. Stops at the first fault, whose offset counts
// from the beginning of `record`.
template <std::uint32_t kLast, typename OnEntry>
Fault walk_maps(Bytes record, JoinedMessages* joined, OnEntry&& on_entry);

// Calls `on_feature(Bytes key, Bytes feature)` for the features of an Example.
template <typename OnFeature>
Fault walk_features(Bytes example, JoinedMessages* joined, OnFeature&& on_feature) {
  return walk_maps<1>(example, joined, [&](std::uint32_t, Bytes key, Bytes feature) {
    on_feature(key, feature);
  });
}

// Finds the list of `feature`: all pieces of the last kind. Lists of other kinds must
// be readable too. The offset of a fault counts from the beginning of `feature`.
Fault find_list(Bytes feature, JoinedMessages* joined, ValueList* list);

// Splits a list of numbers into packed runs; an unpacked value is a run of one. Skips
// unknown fields.
class PackedRuns {
 public:
  PackedRuns(Bytes list, FeatureKind kind) noexcept
      : fields_(list),
        unpacked_(kind == FeatureKind::kFloat ? WireType::kFixed32
                                              : WireType::kVarint) {}

  bool next(Bytes* run) noexcept {
    Field field;
    while (fields_.next(&field)) {
      if (field.number != 1) continue;
      if (field.type != WireType::kLengthDelimited && field.type != unpacked_) continue;
      *run = field.content;
      return true;
    }
    return false;
  }

  Fault fault() const noexcept { return fields_.fault(); }

 private:
  FieldReader fields_;
  WireType unpacked_;
};

// Counts the values of `list`. Returns a fault if it cannot be read to the end.
Fault count_values(const ValueList& list, std::size_t* n);

// Calls `on_string` for every value of a BytesList that count_values() has accepted.
template <typename OnString>
void for_each_string(Bytes list, OnString&& on_string) {
  FieldReader fields(list);
  Bytes string;
  while (fields.next_message(1, &string)) on_string(string);
}

// Reads any map entry: the last key, and all pieces of the value. An absent part is an
// empty view. The offset of a fault counts from the beginning of `entry`.
Fault read_entry(Bytes entry, JoinedMessages* joined, Bytes* key, Bytes* value);

template <std::uint32_t kLast, typename OnEntry>
Fault walk_maps(Bytes record, JoinedMessages* joined, OnEntry&& on_entry) {
  FieldReader record_fields(record);
  Field map;
  while (record_fields.next(&map)) {
    if (map.number > kLast || map.type != WireType::kLengthDelimited) continue;
    FieldReader entries(map.content);
    Bytes entry;
    while (entries.next_message(1, &entry)) {
      Bytes key, value;
      if (!find_plain_entry(entry, &key, &value)) {
        if (Fault fault = read_entry(entry, joined, &key, &value)) {
          fault.offset += static_cast<std::uint64_t>(entry.data() - record.data());
          return fault;
        }
      }
      on_entry(map.number, key, value);
    }
    if (entries.fault()) return entries.fault_from(record.data());
  }
  return record_fields.fault() ? record_fields.fault_from(record.data()) : Fault();
}

}  // namespace fastrec
