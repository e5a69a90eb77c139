#include "survey/foreign.h"

#include <set>

#include "survey/format.h"
#include "survey/guess.h"
#include "wire/walk.h"

namespace fastrec {
namespace {

// The most field numbers to list.
constexpr std::size_t kFieldsMax = 8;

bool has_kind(Bytes feature, JoinedMessages* joined) {
  ValueList list;
  return !find_list(feature, joined, &list) && list.kind != FeatureKind::kNone;
}

bool is_example(Bytes record) {
  JoinedMessages joined;
  bool has_values = false, are_keys_text = true, has_keys = false;
  const Fault fault =
      walk_maps<2>(record, &joined, [&](std::uint32_t map, Bytes key, Bytes value) {
        has_keys = true;
        are_keys_text = are_keys_text && format_of(key) == ByteFormat::kText;
        has_values = has_values || (map == 1 && has_kind(value, &joined));
      });
  if (has_values && !fault) return true;
  if (!are_keys_text) return false;
  // Without values, every field must be a map, and a map must not be another message.
  FieldReader fields(record);
  Field field;
  bool are_maps = true, are_empty = true;
  while (fields.next(&field)) {
    are_maps =
        are_maps && field.number <= 2 && field.type == WireType::kLengthDelimited;
    are_empty = are_empty && field.content.empty();
  }
  return !fault && are_maps && (has_keys || are_empty);
}

// The first field numbers of a message, as text; "" if `record` is not a message.
std::string fields_of(Bytes record) {
  std::set<std::uint32_t> numbers;
  bool has_more = false;
  FieldReader fields(record);
  Field field;
  while (fields.next(&field)) {
    if (numbers.size() < kFieldsMax || numbers.contains(field.number)) {
      numbers.insert(field.number);
    } else {
      has_more = true;
    }
  }
  if (fields.fault()) return "";
  std::string text;
  for (const std::uint32_t number : numbers) {
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return has_more ? text + ", ..." : text;
}

}  // namespace

std::string describe_foreign(Bytes record) {
  if (is_example(record)) return "";
  TensorGuess tensor;
  tensor.add(record);
  if (tensor.is_possible) return "a serialized tensor";
  const ByteFormat format = format_of(record);
  if (format == ByteFormat::kText) return name_of(format);
  if (format != ByteFormat::kOther)
    return std::string("a ") + name_of(format) + " file";
  const std::string fields = fields_of(record);
  if (!fields.empty()) return "a serialized protobuf message with fields " + fields;
  return std::to_string(record.size()) + " bytes of an unknown format";
}

}  // namespace fastrec
