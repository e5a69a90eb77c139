#include "example/walk.h"

#include <utility>

namespace fastrec {

Bytes JoinedMessages::join(Bytes message, const std::uint8_t* from,
                           std::uint32_t number) {
  std::vector<std::uint8_t> whole;
  FieldReader fields(message.subspan(static_cast<std::size_t>(from - message.data())));
  Field field;
  while (fields.next(&field)) {
    if (field.number == number && field.type == WireType::kLengthDelimited) {
      whole.insert(whole.end(), field.content.begin(), field.content.end());
    }
  }
  messages_.push_back(std::move(whole));
  return messages_.back();
}

Fault find_list(Bytes feature, JoinedMessages* joined, ValueList* list) {
  *list = {};
  FieldReader fields(feature);
  const std::uint8_t* first_piece = nullptr;  // of the kind that was seen last
  unsigned n_pieces = 0;
  const std::uint8_t* field_begin = fields.position();
  for (Field field; fields.next(&field); field_begin = fields.position()) {
    if (field.number < 1 || field.number > 3) continue;
    if (field.type != WireType::kLengthDelimited) continue;
    const auto kind = static_cast<FeatureKind>(field.number);
    if (kind != list->kind) {
      n_pieces = 0;
      first_piece = field_begin;
    }
    *list = {kind, field.content};
    ++n_pieces;
  }
  if (fields.fault()) {
    Fault fault = fields.fault();
    fault.offset = static_cast<std::uint64_t>(fields.position() - feature.data());
    return fault;
  }
  if (n_pieces > 1) {
    list->message =
        joined->join(feature, first_piece, static_cast<std::uint32_t>(list->kind));
  }
  return {};
}

Fault count_values(const ValueList& list, std::size_t* n) {
  *n = 0;
  if (list.kind == FeatureKind::kBytes) {
    FieldReader fields(list.message);
    Field field;
    while (fields.next(&field)) {
      *n += field.number == 1 && field.type == WireType::kLengthDelimited;
    }
    return fields.fault();
  }
  PackedRuns runs(list.message, list.kind);
  Bytes run;
  while (runs.next(&run)) {
    if (list.kind == FeatureKind::kFloat) {
      if (run.size() % sizeof(float) != 0) {
        return {.code = Errc::kPackedFloatLength, .found = run.size()};
      }
      *n += run.size() / sizeof(float);
    } else {
      if (!run.empty() && run.back() >= 0x80) return {.code = Errc::kVarintCut};
      *n += count_varints(run);
    }
  }
  return runs.fault();
}

}  // namespace fastrec
