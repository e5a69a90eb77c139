#include "example/sequence.h"

#include <cstring>

#include "example/values.h"

namespace fastrec {
namespace {

Fault check_count(const ColumnSpec& spec, std::size_t n) {
  const bool fits = spec.layout == Layout::kPadded
                        ? n == spec.n_values
                        : spec.n_values != 0 && spec.n_items(n) * spec.n_values == n;
  if (fits) return {};
  return {.code = Errc::kValueCount, .found = n, .expected = spec.n_values};
}

// Adds the `*n` values of a step, all of which must be of the kind that `spec` says. A
// step without a kind has none.
Fault append_step(const ColumnSpec& spec, std::size_t column, Bytes feature, Way way,
                  JoinedMessages* joined, BatchBuilder* batch, std::size_t* n) {
  if (way == Way::kFast && append_plain_values(spec, column, feature, batch, n)) {
    return check_count(spec, *n);
  }
  *n = 0;
  ValueList list;
  if (Fault fault = find_list(feature, joined, &list)) return fault;
  if (list.kind == FeatureKind::kNone) return check_count(spec, 0);
  if (list.kind != spec.kind) {
    return {.code = Errc::kFeatureKind,
            .found = static_cast<std::uint64_t>(list.kind),
            .expected = static_cast<std::uint64_t>(spec.kind)};
  }
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

}  // namespace

Fault decode_steps(const Schema& schema, std::size_t column, Bytes list, Way way,
                   JoinedMessages* joined, BatchBuilder* batch) {
  const ColumnSpec& spec = schema.columns[column];
  const bool has_sizes = spec.layout == Layout::kRagged;
  std::size_t n_steps = 0, n_kept = 0, n_items = 0;
  FieldReader fields(list);
  Bytes step;
  while (fields.next_message(1, &step)) {
    std::size_t n;
    if (Fault fault = append_step(spec, column, step, way, joined, batch, &n)) {
      fault.offset += static_cast<std::uint64_t>(step.data() - list.data());
      return fault;
    }
    ++n_steps;
    if (n_kept == spec.length) {
      batch->retract(column, n);  // read all the same: it may be at fault
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
