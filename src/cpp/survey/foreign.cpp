#include "survey/foreign.h"

#include <set>

#include "survey/format.h"
#include "survey/guess.h"
#include "wire/walk.h"

namespace fastrec {
namespace {

// The most field numbers to list.
constexpr std::size_t kFieldsMax = 8;

// Whether field 1 proves that `record`, whose fields are valid, is neither an Example nor
// a SequenceExample: it is a number, or has entries, and no entry has a value.
bool is_other_message(Bytes record) {
  JoinedMessages joined;
  bool has_entries = false, has_values = false, has_number = false;
  // Field 2 of an Example is unknown, so a fault in it proves nothing.
  (void)walk_maps<2>(record, &joined, [&](std::uint32_t map, Bytes, Bytes value) {
    has_entries = has_entries || map == 1;
    has_values = has_values || value.data() != nullptr;
  });
  FieldReader fields(record);
  Field field;
  while (!has_entries && fields.next(&field)) {
    const bool is_number =
        field.type != WireType::kLengthDelimited && field.type != WireType::kGroupBegin;
    has_number = has_number || (field.number == 1 && is_number);
  }
  return has_entries ? !has_values : has_number;
}

// Whether `value` of a map entry is a feature with a kind, or an empty one.
bool is_feature(Bytes value, JoinedMessages* joined) {
  ValueList list;
  return value.data() != nullptr && !find_list(value, joined, &list) &&
         (list.kind != FeatureKind::kNone || value.empty());
}

bool is_example(Bytes record) {
  JoinedMessages joined;
  bool has_features = false, are_keys_text = true, has_keys = false;
  const Fault fault =
      walk_maps<2>(record, &joined, [&](std::uint32_t map, Bytes key, Bytes value) {
        if (has_features) return;
        has_features = map == 1 && is_feature(value, &joined);
        has_keys = has_keys || value.data() != nullptr;
        are_keys_text = are_keys_text && format_of(key) == ByteFormat::kText;
      });
  if (has_features && !fault) return true;
  if (!are_keys_text || is_other_message(record)) return false;
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

Fault check_example(Bytes record) {
  if (!is_other_message(record)) return {};
  return {.code = Errc::kNotExample};
}

std::string describe_foreign(Bytes record) {
  if (is_example(record)) return "";
  TensorGuess tensor;
  tensor.add(record);
  if (tensor.is_possible) return "a serialized tensor";
  const ByteFormat format = format_of(record);
  if (format == ByteFormat::kText) {
    for (const char* begin : {"/9j/", "iVBORw0KGgo", "UklGR"}) {
      if (as_text(record).starts_with(begin)) return "an image in base64";
    }
    return name_of(format);
  }
  if (format != ByteFormat::kOther)
    return std::string("a ") + name_of(format) + " file";
  const std::string fields = fields_of(record);
  if (!fields.empty()) return "a serialized protobuf message with fields " + fields;
  return std::to_string(record.size()) + " bytes of an unknown format";
}

}  // namespace fastrec
