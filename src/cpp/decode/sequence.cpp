#include "decode/sequence.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "decode/values.h"
#include "wire/plain.h"
#include "wire/varint.h"

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
                  DecodeMode mode, JoinedMessages* joined, BatchBuilder* batch,
                  std::size_t* n) {
  if (mode == DecodeMode::kFast &&
      append_plain_values(spec, column, feature, batch, n)) {
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

// The header of a step of packed numbers in the plain form, up to the P bytes of
// values:
//
//   0a S  12|1a L  0a P       S = P + 4, L = P + 2, each in one byte
struct StepHeader {
  static constexpr std::size_t kBytes = 6;
  static constexpr std::size_t kMaxPayloadBytes = 0x7f - 4;

  explicit StepHeader(FeatureKind kind) noexcept
      : empty(std::uint64_t{kTagOne} | std::uint64_t{4} << 8 |
              std::uint64_t{static_cast<unsigned>(kind) << 3 | 2} << 16 |
              std::uint64_t{2} << 24 | std::uint64_t{kTagOne} << 32) {}

  // Whether `p`, which has slack, is the header of `n_payload` bytes of values.
  bool is_at(const std::uint8_t* p, std::uint64_t n_payload) const noexcept {
    constexpr std::uint64_t kLengths = 0x010001000100;
    constexpr std::uint64_t kHeader = 0xffffffffffff;
    const std::uint64_t expected = empty + n_payload * kLengths;
    return ((load_le<std::uint64_t>(p) ^ expected) & kHeader) == 0;
  }

  std::uint64_t empty;  // the header of no values
};

// Decodes up to `room` plain steps of one int64 each from `*p` on, and advances `*p`.
// Returns their number.
std::size_t append_single_ints(const std::uint8_t** p, const std::uint8_t* end,
                               std::size_t room, std::uint8_t* target) noexcept {
  const StepHeader header(FeatureKind::kInt64);
  std::size_t n = 0;
  for (; n < room && *p != end; ++n) {
    const std::size_t n_payload = (*p)[StepHeader::kBytes - 1];
    if (n_payload - 1 >= sizeof(std::uint64_t) || !header.is_at(*p, n_payload)) break;
    if (end - *p < std::ptrdiff_t(StepHeader::kBytes + n_payload)) break;
    const auto word = load_le<std::uint64_t>(*p + StepHeader::kBytes);
    std::uint64_t value;
    if (!read_varint_of(word, n_payload, &value)) break;
    std::memcpy(target + n * sizeof value, &value, sizeof value);
    *p += StepHeader::kBytes + n_payload;
  }
  return n;
}

// The same for steps of `n_bytes` of float32 each. `target` needs kCopyBlockBytes more.
std::size_t append_float_steps(const std::uint8_t** p, const std::uint8_t* end,
                               std::size_t n_bytes, std::size_t room,
                               std::uint8_t* target) noexcept {
  if (n_bytes > StepHeader::kMaxPayloadBytes) return 0;
  const StepHeader header(FeatureKind::kFloat);
  const std::size_t step_bytes = StepHeader::kBytes + n_bytes;
  std::size_t n = 0;
  for (; n < room && static_cast<std::size_t>(end - *p) >= step_bytes; ++n) {
    if (!header.is_at(*p, n_bytes)) break;
    copy_blocks(*p + StepHeader::kBytes, n_bytes, target + n * n_bytes);
    *p += step_bytes;
  }
  return n;
}

// Appends the leading steps of `list` to a padded column, while they are plain and need
// no conversion. Returns their number, and sets `*p` to the first other step.
std::size_t append_uniform_steps(const ColumnSpec& spec, std::size_t column, Bytes list,
                                 BatchBuilder* batch, const std::uint8_t** p) {
  *p = list.data();
  const bool is_int = spec.dtype == DType::kInt64 && spec.n_values == 1;
  const bool is_float = spec.dtype == DType::kFloat32;
  if (spec.layout != Layout::kPadded || (!is_int && !is_float)) return 0;
  const std::size_t row_bytes = spec.row_bytes();
  const std::size_t min_step_bytes = StepHeader::kBytes + (is_int ? 1 : row_bytes);
  std::size_t room = list.size() / min_step_bytes;
  if (spec.length) room = std::min(room, *spec.length);
  const std::uint8_t* const end = list.data() + list.size();
  GrowingArray& values = batch->values(column);
  std::uint8_t* target = values.reserve(room * row_bytes + kCopyBlockBytes);
  const std::size_t n = is_int ? append_single_ints(p, end, room, target)
                               : append_float_steps(p, end, row_bytes, room, target);
  values.advance(n * row_bytes);
  return n;
}

// Finds the list of the plain step at `p`, which has slack: 0a S kind L, where L = S -
// 2 and both are one byte. False if `p` is not such a step.
inline bool find_short_step(const std::uint8_t* p, const std::uint8_t* end,
                            FeatureKind kind, Bytes* list) noexcept {
  const std::uint32_t n_bytes = p[1];
  const std::uint32_t expected = kTagOne | n_bytes << 8 |
                                 (static_cast<std::uint32_t>(kind) << 3 | 2) << 16 |
                                 (n_bytes - 2) << 24;
  // Less than the 2 bytes of an empty list wraps around.
  if (load_le<std::uint32_t>(p) != expected || n_bytes - 2 >= 0x80 - 2 ||
      end - p < std::ptrdiff_t{2} + n_bytes) {
    return false;
  }
  *list = {p + 4, n_bytes - 2};
  return true;
}

// Appends all steps of `list` to a ragged column of strings and its step sizes, if the
// steps and strings are plain and short. Returns the number of steps and adds their
// items to `*n_items`; returns 0 if it appended nothing.
std::size_t append_string_steps(const ColumnSpec& spec, std::size_t column, Bytes list,
                                BatchBuilder* batch, std::size_t* n_items) {
  constexpr std::size_t kStepBytes = 4;  // of an empty step
  if (!ShortStrings::can_hold(list)) return 0;
  ShortStrings strings(column, list, batch);
  GrowingArray& sizes = batch->values(column + 1);
  std::uint8_t* const first_size =
      sizes.reserve(list.size() / kStepBytes * sizeof(std::int64_t));
  std::uint8_t* next_size = first_size;
  const std::uint8_t* const end = list.data() + list.size();
  Bytes step;
  for (const std::uint8_t* p = list.data(); p != end; p = step.data() + step.size()) {
    const std::size_t n_before = strings.size();
    if (!find_short_step(p, end, spec.kind, &step) || !strings.append(step)) return 0;
    const auto size = static_cast<std::int64_t>(strings.size() - n_before);
    std::memcpy(next_size, &size, sizeof size);
    next_size += sizeof size;
  }
  const std::size_t n_bytes = static_cast<std::size_t>(next_size - first_size);
  const std::size_t n_steps = n_bytes / sizeof(std::int64_t);
  if (spec.length && n_steps > *spec.length) return 0;
  sizes.advance(n_bytes);
  strings.commit();
  *n_items += strings.size();
  return n_steps;
}

// Appends the leading steps of `list` to a ragged column and its step sizes, while they
// are plain and short. Returns their number, adds their items to `*n_items`, and sets
// `*p` to the first other step.
std::size_t append_ragged_steps(const ColumnSpec& spec, std::size_t column, Bytes list,
                                BatchBuilder* batch, const std::uint8_t** p,
                                std::size_t* n_items) {
  *p = list.data();
  if (spec.n_values != 1) return 0;
  const std::uint8_t* const end = list.data() + list.size();
  std::size_t n = 0, n_values;
  if (spec.dtype == DType::kBytes) {
    n = append_string_steps(spec, column, list, batch, n_items);
    if (n != 0) *p = end;
    if (n != 0) return n;
  }
  const std::size_t n_max =
      spec.length.value_or(std::numeric_limits<std::size_t>::max());
  Bytes values;
  while (n < n_max && *p != end && find_short_step(*p, end, spec.kind, &values) &&
         append_plain_list(spec, column, values, batch, &n_values)) {
    batch->values(column + 1).append(static_cast<std::int64_t>(n_values));
    *n_items += n_values;
    *p = values.data() + values.size();
    ++n;
  }
  return n;
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

Fault decode_steps(const Schema& schema, std::size_t column, Bytes list,
                   DecodeMode mode, JoinedMessages* joined, BatchBuilder* batch) {
  const ColumnSpec& spec = schema.columns[column];
  const bool has_sizes = spec.layout == Layout::kRagged;
  const std::uint8_t* after = list.data();
  std::size_t n_steps = 0, n_items = 0;
  if (mode == DecodeMode::kFast && has_sizes) {
    n_steps = append_ragged_steps(spec, column, list, batch, &after, &n_items);
  } else if (mode == DecodeMode::kFast) {
    n_items = n_steps = append_uniform_steps(spec, column, list, batch, &after);
  }
  std::size_t n_kept = n_steps;
  FieldReader fields(list.subspan(static_cast<std::size_t>(after - list.data())));
  Bytes step;
  while (fields.next_message(1, &step)) {
    std::size_t n;
    if (Fault fault = append_step(spec, column, step, mode, joined, batch, &n)) {
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

std::string describe_steps(const Schema& schema, const ColumnSpec& spec,
                           const Fault& fault) {
  const std::string list = "feature list '" + spec.key + "' ";
  const std::string in_spec = " (" + describe_spec(schema, spec) + ")";
  const std::string found = std::to_string(fault.found);
  const std::string expected = std::to_string(fault.expected);
  switch (fault.code) {
    case Errc::kFeatureMissing:
      return list + "is missing and has no default" + in_spec;
    case Errc::kFeatureKind:
      return list + "has a step of " +
             kind_name(static_cast<FeatureKind>(fault.found)) + " values" + in_spec +
             "; " + matching_dtype(static_cast<FeatureKind>(fault.found));
    case Errc::kValueCount: {
      const bool is_padded = spec.layout == Layout::kPadded;
      return list + "has a step of " + found +
             (fault.found == 1 ? " value" : " values") + ", expected " +
             (is_padded ? "" : "a multiple of ") + expected + in_spec +
             (is_padded ? "; " + varlen_spec(spec) + " accepts any number" : "");
    }
    case Errc::kStepCount:
      if (spec.layout == Layout::kRagged) {
        return list + "has " + found + " steps, but the list that it partitions has " +
               expected + in_spec;
      }
      return list + "has " + found + " steps, expected at most " + expected + in_spec +
             "; truncate=True drops the rest";
    case Errc::kValueOutOfRange:
      return list + "holds " + std::to_string(static_cast<std::int64_t>(fault.found)) +
             ", which is out of range" + in_spec + "; \"int64\" holds any value";
    default:
      return list + "cannot be read: " + describe(fault);
  }
}

}  // namespace fastrec
