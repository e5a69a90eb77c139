#include "example/sequence.h"

#include <cstring>

#include "example/values.h"

namespace fastrec {
namespace {

// Finds the values of a step, all of them readable and of the kind that `spec` says. A
// step without a kind has none.
Fault find_values(const ColumnSpec& spec, Bytes feature, JoinedMessages* joined,
                  ValueList* list, std::size_t* n) {
  *n = 0;
  if (Fault fault = find_list(feature, joined, list)) return fault;
  if (list->kind != FeatureKind::kNone && list->kind != spec.kind) {
    return {.code = Errc::kFeatureKind,
            .found = static_cast<std::uint64_t>(list->kind),
            .expected = static_cast<std::uint64_t>(spec.kind)};
  }
  if (list->kind != FeatureKind::kNone) {
    if (Fault fault = count_values(*list, n)) return fault;
  }
  const bool fits = spec.layout == Layout::kPadded
                        ? *n == spec.n_values
                        : spec.n_values != 0 && *n % spec.n_values == 0;
  if (fits) return {};
  return {.code = Errc::kValueCount, .found = *n, .expected = spec.n_values};
}

// Adds the `n` values of a step, or only looks at them.
Fault add_values(const ColumnSpec& spec, std::size_t column, const ValueList& list,
                 std::size_t n, bool is_kept, BatchBuilder* batch) {
  if (n == 0) return {};
  if (spec.dtype == DType::kBytes) {
    for_each_string(list.message, [&](Bytes value) {
      if (is_kept) batch->append_string(column, value);
    });
    return {};
  }
  const std::size_t n_bytes = n * spec.item_bytes;
  std::uint8_t* target = batch->extend(column, n_bytes);
  if (Fault fault = decode_numbers(list, n, spec.dtype, target)) return fault;
  if (!is_kept) batch->retract(column, n_bytes);
  return {};
}

}  // namespace

Fault decode_steps(const Schema& schema, std::size_t column, Bytes list,
                   JoinedMessages* joined, BatchBuilder* batch) {
  const ColumnSpec& spec = schema.columns[column];
  const bool has_sizes = spec.layout == Layout::kRagged;
  std::size_t n_steps = 0, n_items = 0;
  FieldReader fields(list);
  Field step;
  while (fields.next(&step)) {
    if (step.number != 1 || step.type != WireType::kLengthDelimited) continue;
    const bool is_kept = !spec.length || n_steps < *spec.length;
    ValueList values;
    std::size_t n;
    Fault fault = find_values(spec, step.content, joined, &values, &n);
    if (!fault) fault = add_values(spec, column, values, n, is_kept, batch);
    if (fault) {
      fault.offset += static_cast<std::uint64_t>(step.content.data() - list.data());
      return fault;
    }
    ++n_steps;
    if (!is_kept) continue;
    const auto size = static_cast<std::int64_t>(n / spec.n_values);
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
  if (spec.length && n_steps > *spec.length && !spec.truncate) {
    return {.code = Errc::kStepCount, .found = n_steps, .expected = *spec.length};
  }
  batch->end_ragged_row(column, n_items);
  if (has_sizes) batch->end_ragged_row(column + 1, n_steps);
  return {};
}

std::string describe_steps(const Schema& schema, const ColumnSpec& spec,
                           const Fault& fault) {
  const std::string list = "feature list '" + spec.key + "' ";
  const std::string says = spec_says(schema, spec);
  const std::string found = std::to_string(fault.found);
  const std::string expected = std::to_string(fault.expected);
  switch (fault.code) {
    case Errc::kFeatureMissing:
      return list + "is missing, and " + says;
    case Errc::kFeatureKind:
      return list + "has a step of " +
             kind_name(static_cast<FeatureKind>(fault.found)) + " values, " + says +
             "; " + reads_kind(static_cast<FeatureKind>(fault.found));
    case Errc::kValueCount:
      return list + "has a step of " + found +
             (fault.found == 1 ? " value, " : " values, ") + says + " with " +
             expected +
             (spec.layout == Layout::kPadded
                  ? " a step; " + any_number(spec) + " takes any number of them"
                  : " an item");
    case Errc::kStepCount:
      return list + "has " + found + " steps, " + says + " with " + expected +
             " at most; truncate=True cuts it";
    case Errc::kValueOutOfRange:
      return list + "holds " + std::to_string(static_cast<std::int64_t>(fault.found)) +
             ", which does not fit: " + says + "; \"int64\" holds any value";
    default:
      return list + "cannot be read: " + describe(fault);
  }
}

}  // namespace fastrec
