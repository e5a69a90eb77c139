#include "wire/walk.h"

#include <utility>

#include "wire/packed.h"

namespace fastrec {

namespace {

// Checks that a piece is readable by itself: the next piece must not complete a
// truncated field.
Fault check_readable(Bytes message) {
  FieldReader fields(message);
  Field field;
  while (fields.next(&field)) {
  }
  return fields.fault();
}

// Checks that all values of `list` can be read.
Fault check_values(const ValueList& list) {
  std::size_t n;
  if (Fault fault = count_values(list, &n)) return fault;
  if (list.kind != FeatureKind::kInt64) return {};
  PackedRuns runs(list.message, list.kind);
  Bytes run;
  while (runs.next(&run)) {
    const std::uint8_t* const end = run.data() + run.size();
    for (const std::uint8_t* p = run.data(); p != end;) {
      std::uint64_t value;
      Errc errc;
      p = read_varint(p, end, &value, &errc);
      if (p == nullptr) return {.code = errc};
    }
  }
  return {};
}

}  // namespace

Fault JoinedMessages::join(Bytes message, const std::uint8_t* from,
                           std::uint32_t number, Bytes* whole) {
  constexpr std::size_t kSlackBytes = BytesWithSlack::kSlackBytes;
  std::vector<std::uint8_t> joined(kSlackBytes);
  FieldReader fields(message.subspan(static_cast<std::size_t>(from - message.data())));
  Bytes piece;
  while (fields.next_message(number, &piece)) {
    if (Fault fault = check_readable(piece)) return fault;
    joined.insert(joined.end(), piece.begin(), piece.end());
  }
  const std::size_t n_bytes = joined.size() - kSlackBytes;
  joined.resize(joined.size() + kSlackBytes);
  messages_.push_back(std::move(joined));
  *whole = Bytes(messages_.back()).subspan(kSlackBytes, n_bytes);
  return {};
}

Fault located(Fault fault, Bytes part, Bytes record) noexcept {
  const std::uint8_t* const end = record.data() + record.size();
  const bool is_inside =
      part.data() != nullptr && part.data() >= record.data() && part.data() <= end;
  fault.offset =
      is_inside ? fault.offset + static_cast<std::uint64_t>(part.data() - record.data())
                : 0;
  return fault;
}

Fault read_entry(Bytes entry, JoinedMessages* joined, Bytes* key, Bytes* value) {
  *key = *value = {};
  unsigned n_values = 0;
  FieldReader parts(entry);
  Field part;
  while (parts.next(&part)) {
    if (part.type != WireType::kLengthDelimited) continue;
    if (part.number == 1) {
      *key = part.content;
    } else if (part.number == 2) {
      *value = part.content;
      ++n_values;
    }
  }
  if (parts.fault()) return parts.fault_from(entry.data());
  return n_values > 1 ? joined->join(entry, entry.data(), 2, value) : Fault();
}

Fault find_list(Bytes feature, JoinedMessages* joined, ValueList* list) {
  *list = {};
  FieldReader fields(feature);
  const std::uint8_t* first_piece = nullptr;  // of the last kind seen
  unsigned n_pieces = 0;                      // of that kind
  const std::uint8_t* field_begin = fields.position();
  for (Field field; fields.next(&field); field_begin = fields.position()) {
    if (field.number < 1 || field.number > 3) continue;
    if (field.type != WireType::kLengthDelimited) continue;
    const auto kind = static_cast<FeatureKind>(field.number);
    if (list->kind != FeatureKind::kNone) {
      // There are several lists, so no caller will read this one by itself.
      if (Fault fault = check_values(*list)) return fault;
    }
    if (kind != list->kind) {
      n_pieces = 0;
      first_piece = field_begin;
    }
    *list = {kind, field.content};
    ++n_pieces;
  }
  if (fields.fault()) return fields.fault_from(feature.data());
  if (n_pieces <= 1) return {};
  return joined->join(feature, first_piece, static_cast<std::uint32_t>(list->kind),
                      &list->message);
}

Fault count_values(const ValueList& list, std::size_t* n) {
  *n = 0;
  if (list.kind == FeatureKind::kBytes) {
    FieldReader fields(list.message);
    Bytes string;
    while (fields.next_message(1, &string)) ++*n;
    return fields.fault();
  }
  Bytes run;
  PackedRuns runs(list.message, list.kind);
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
