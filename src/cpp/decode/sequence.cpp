#include "decode/sequence.h"

#include <cstring>

#include "decode/values.h"

namespace fastrec {
namespace {

Fault check_count(const ColumnSpec& spec, std::size_t n) {
  const bool fits = spec.layout == Layout::kPadded
                        ? n == spec.n_values
                        : spec.n_values != 0 && spec.n_items(n) * spec.n_values == n;
  if (fits) return {};
  return {.code = Errc::kValueCount, .found = n, .expected = spec.n_values};
}

// Appends the values of a step, which must be of the kind of `spec`, and sets `*n` to
// their number. A step without a kind has no values.
Fault append_step(const ColumnSpec& spec, std::size_t column, Bytes feature,
                  JoinedMessages* joined, BatchBuilder* batch, std::size_t* n) {
  *n = 0;
  ValueList list;
  if (Fault fault = find_list_of(spec, feature, joined, &list)) return fault;
  if (list.kind == FeatureKind::kNone) return check_count(spec, 0);
  if (Fault fault = count_values(list, n)) return fault;
  if (Fault fault = check_count(spec, *n)) return fault;
  if (spec.dtype == DType::kBytes) {
    for_each_string(list.message,
                    [&](Bytes value) { batch->append_string(column, value); });
    return {};
  }
  std::uint8_t* target = batch->extend(column, *n * spec.item_bytes);
  return decode_numbers(list, *n, spec.dtype, target);
}

// Calls `on_message(number, content)` for each field of `message`. False if a call
// returns false, or if a field is malformed or not length-delimited.
template <typename OnMessage>
bool all_messages(Bytes message, OnMessage&& on_message) {
  FieldReader fields(message);
  Field field;
  while (fields.next(&field)) {
    if (field.type != WireType::kLengthDelimited ||
        !on_message(field.number, field.content)) {
      return false;
    }
  }
  return !fields.fault();
}

// Whether `step` is a Feature; sets `*has_kind` if it has a list of values.
bool is_feature(Bytes step, bool* has_kind) {
  return all_messages(step, [&](std::uint32_t number, Bytes list) {
    if (number < 1 || number > 3) return false;
    std::size_t n;
    if (count_values({static_cast<FeatureKind>(number), list}, &n)) return false;
    *has_kind = true;
    return true;
  });
}

// Whether `message` is a FeatureLists message with at least one step that has a kind.
bool is_feature_lists(Bytes message) {
  bool has_kind = false;
  const auto is_step = [&](std::uint32_t number, Bytes step) {
    return number == 1 && is_feature(step, &has_kind);
  };
  const auto is_field = [&](std::uint32_t number, Bytes part) {
    return number == 1 || (number == 2 && all_messages(part, is_step));
  };
  const auto is_entry = [&](std::uint32_t number, Bytes entry) {
    return number == 1 && all_messages(entry, is_field);
  };
  return all_messages(message, is_entry) && has_kind;
}

}  // namespace

bool has_feature_lists(Bytes record) {
  FieldReader fields(record);
  Bytes message;
  while (fields.next_message(2, &message)) {
    if (is_feature_lists(message)) return true;
  }
  return false;
}

Fault decode_steps(const Schema& schema, std::size_t column, Bytes list, StepsRead read,
                   JoinedMessages* joined, BatchBuilder* batch) {
  const ColumnSpec& spec = schema.columns[column];
  const bool has_sizes = spec.layout == Layout::kRagged;
  std::size_t n_steps = read.n_steps, n_items = read.n_items;
  std::size_t n_kept = n_steps;
  FieldReader fields(list.subspan(read.n_bytes));
  Bytes step;
  while (fields.next_message(1, &step)) {
    std::size_t n;
    if (Fault fault = append_step(spec, column, step, joined, batch, &n)) {
      fault.offset += static_cast<std::uint64_t>(step.data() - list.data());
      return fault;
    }
    ++n_steps;
    if (n_kept == spec.length) {
      batch->retract(column, n);  // decoded only to find its faults
      continue;
    }
    ++n_kept;
    const auto size = static_cast<std::int64_t>(has_sizes ? spec.n_items(n) : 1);
    n_items += static_cast<std::size_t>(size);
    if (has_sizes) {
      std::memcpy(batch->extend(column + 1, sizeof size), &size, sizeof size);
    }
  }
  if (fields.fault()) {
    Fault fault = fields.fault();
    fault.offset = static_cast<std::uint64_t>(fields.position() - list.data());
    return fault;
  }
  if (n_kept != n_steps && !spec.truncate) {
    return {.code = Errc::kStepCount, .found = n_steps, .expected = *spec.length};
  }
  batch->end_ragged_row(column, n_items);
  if (has_sizes) batch->end_ragged_row(column + 1, n_kept);
  return {};
}

}  // namespace fastrec
