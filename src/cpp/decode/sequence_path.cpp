#include "decode/sequence_path.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "decode/sequence.h"
#include "decode/values.h"
#include "wire/plain.h"
#include "wire/varint.h"

namespace fastrec {
namespace {

constexpr std::size_t kMinStepBytes = 4;  // of an empty step

// The room for steps of numbers that is reserved at once.
constexpr std::size_t kStepsMax = 4096;

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
                               std::size_t /*n_bytes*/, std::size_t room,
                               std::uint8_t* target) noexcept {
  const StepHeader header(FeatureKind::kInt64);
  const std::uint8_t* step = *p;
  std::size_t n = 0;
  for (; n < room && step != end; ++n) {
    const std::size_t n_payload = step[StepHeader::kBytes - 1];
    if (n_payload - 1 >= sizeof(std::uint64_t) || !header.is_at(step, n_payload)) break;
    if (end - step < std::ptrdiff_t(StepHeader::kBytes + n_payload)) break;
    const auto word = load_le<std::uint64_t>(step + StepHeader::kBytes);
    std::uint64_t value;
    if (!read_varint_of(word, n_payload, &value)) break;
    std::memcpy(target + n * sizeof value, &value, sizeof value);
    step += StepHeader::kBytes + n_payload;
  }
  *p = step;
  return n;
}

// The same for steps of `n_bytes` of float32 each, at most kBlockBytes. Reads and writes
// up to kBlockBytes past the end.
template <std::size_t kBlockBytes>
std::size_t append_float_steps(const std::uint8_t** p, const std::uint8_t* end,
                               std::size_t n_bytes, std::size_t room,
                               std::uint8_t* target) noexcept {
  const StepHeader header(FeatureKind::kFloat);
  const std::size_t step_bytes = StepHeader::kBytes + n_bytes;
  const std::uint8_t* step = *p;
  std::size_t n = 0;
  for (; n < room && static_cast<std::size_t>(end - step) >= step_bytes; ++n) {
    if (!header.is_at(step, n_bytes)) break;
    std::memcpy(target + n * n_bytes, step + StepHeader::kBytes, kBlockBytes);
    step += step_bytes;
  }
  *p = step;
  return n;
}

// Appends the leading steps of `list` to a padded column, while they are plain and need
// no conversion. Returns their number, and sets `*p` to the first other step.
std::size_t append_uniform_steps(const ColumnSpec& spec, std::size_t column, Bytes list,
                                 BatchBuilder* batch, const std::uint8_t** p) {
  *p = list.data();
  const bool is_int = spec.dtype == DType::kInt64 && spec.n_values == 1;
  const std::size_t row_bytes = spec.row_bytes();
  const bool is_float =
      spec.dtype == DType::kFloat32 && row_bytes <= StepHeader::kMaxPayloadBytes;
  if (!is_int && !is_float) return 0;
  constexpr std::size_t kBlockBytes = BytesWithSlack::kSlackBytes;
  static_assert(StepHeader::kMaxPayloadBytes <= kBlockBytes);
  std::size_t room = list.size() / (StepHeader::kBytes + (is_int ? 1 : row_bytes));
  if (spec.length) room = std::min(room, *spec.length);
  const std::uint8_t* const end = list.data() + list.size();
  GrowingArray& values = batch->values(column);
  std::uint8_t* target = values.reserve(room * row_bytes + kBlockBytes);
  const auto append = is_int            ? append_single_ints
                      : row_bytes <= 16 ? append_float_steps<16>
                      : row_bytes <= 64 ? append_float_steps<64>
                                        : append_float_steps<kBlockBytes>;
  const std::size_t n = append(p, end, row_bytes, room, target);
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
  if (!ShortStrings::can_hold(list)) return 0;
  ShortStrings strings(column, list, batch);
  GrowingArray& sizes = batch->values(column + 1);
  std::uint8_t* const first_size =
      sizes.reserve(list.size() / kMinStepBytes * sizeof(std::int64_t));
  std::uint8_t* next_size = first_size;
  std::int64_t size = 0;  // of the current step
  const std::uint8_t* const end = list.data() + list.size();
  const std::uint8_t* step_end = list.data();
  // How many strings a step has cannot be predicted. So a pass reads either the header
  // of a step or a string, and selects by masks instead of branches.
  for (const std::uint8_t* p = list.data(); p != end;) {
    const auto is_header = static_cast<std::uint64_t>(p == step_end);
    const std::uint64_t in_string = is_header - 1, in_header = ~in_string;
    const std::uint64_t n_bytes = p[1];
    // Both start with 0a and a short length n; a header continues with 0a and n - 2.
    const auto start = load_le<std::uint32_t>(p);
    const std::uint32_t header = kTagOne << 16 | static_cast<std::uint32_t>(n_bytes - 2)
                                                     << 24;
    const std::uint32_t wrapped = start & 0x80000000;  // n is less than 2
    const std::uint64_t differ =
        ((start ^ kTagOne) & 0x80ff) |
        (in_header & (((start ^ header) & 0xffff0000) | wrapped));
    const auto room = static_cast<std::uint64_t>(step_end - p) |
                      (in_header & static_cast<std::uint64_t>(end - p));
    if (differ != 0 || 2 + n_bytes > room) return 0;
    strings.append_if(in_string, p + 2, n_bytes);
    step_end += in_header & (2 + n_bytes);
    next_size += sizeof size * is_header;
    size = (size + 1) & static_cast<std::int64_t>(in_string);
    std::memcpy(next_size - sizeof size, &size, sizeof size);
    p = p + 2 + 2 * is_header + (n_bytes & in_string);
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
  if (spec.dtype == DType::kBytes) {
    const std::size_t n = append_string_steps(spec, column, list, batch, n_items);
    if (n != 0) *p = end;
    return n;
  }
  const std::size_t room = std::min(
      {list.size() / kMinStepBytes, kStepsMax, spec.length.value_or(kStepsMax)});
  GrowingArray& sizes = batch->values(column + 1);
  std::uint8_t* const target = sizes.reserve(room * sizeof(std::int64_t));
  std::size_t n = 0, n_values;
  Bytes values;
  for (; n < room && *p != end && find_short_step(*p, end, spec.kind, &values) &&
         append_plain_list(spec, column, values, batch, &n_values);
       ++n) {
    const auto size = static_cast<std::int64_t>(n_values);
    std::memcpy(target + n * sizeof size, &size, sizeof size);
    *n_items += n_values;
    *p = values.data() + values.size();
  }
  sizes.advance(n * sizeof(std::int64_t));
  return n;
}

// Appends the leading steps of `list` to a column and its step sizes, while they are
// plain and fit. Returns what it read.
StepsRead append_plain_steps(const ColumnSpec& spec, std::size_t column, Bytes list,
                             BatchBuilder* batch) {
  const std::uint8_t* p = list.data();
  const std::uint8_t* const end = list.data() + list.size();
  const bool has_sizes = spec.layout == Layout::kRagged;
  StepsRead read;
  if (has_sizes) {
    read.n_steps = append_ragged_steps(spec, column, list, batch, &p, &read.n_items);
  } else {
    read.n_items = read.n_steps = append_uniform_steps(spec, column, list, batch, &p);
  }
  if (has_sizes && spec.n_values == 0) return read;
  while (p != end && read.n_steps != spec.length) {
    Bytes step, values;
    std::size_t n;
    const std::uint8_t* const after = read_plain_field(p, end, kTagOne, &step);
    if (after == nullptr || !find_plain_list(step, spec.kind, &values) ||
        !append_plain_list(spec, column, values, batch, &n)) {
      break;
    }
    const std::size_t n_items = has_sizes ? spec.n_items(n) : 1;
    if (n_items * spec.n_values != n) {
      batch->retract(column, n);
      break;
    }
    if (has_sizes) {
      batch->values(column + 1).append(static_cast<std::int64_t>(n_items));
    }
    read.n_items += n_items;
    ++read.n_steps;
    p = after;
  }
  read.n_bytes = static_cast<std::size_t>(p - list.data());
  return read;
}

}  // namespace

bool SequencePath::can_read(const Schema& schema) {
  bool has_lists = false;
  for (const ColumnSpec& spec : schema.columns) {
    if (spec.layout == Layout::kRecord) continue;
    if (spec.section == Section::kFeatures || spec.is_stacked_string()) return false;
    has_lists = has_lists || spec.section == Section::kLists;
  }
  return has_lists;
}

SequencePath::SequencePath(const Schema& schema) : schema_(schema) {
  for (std::uint32_t column = 0; column < schema.columns.size(); ++column) {
    const ColumnSpec& spec = schema.columns[column];
    if (spec.section == Section::kStepSizes) continue;
    if (spec.layout == Layout::kRecord) {
      record_columns_.push_back(column);
      continue;
    }
    Map& map = spec.section == Section::kLists ? lists_ : context_;
    const std::uint32_t number = map.keys.insert(spec.key);
    map.columns.resize(map.keys.size());
    map.columns[number].push_back(column);
    map.marks.resize(map.keys.size());
    map.followers.resize(map.keys.size() + 1, KeyTable::kNone);
  }
}

bool SequencePath::decode(BytesWithSlack record, std::size_t row,
                          FeatureDecoder* decoder, BatchBuilder* batch) {
  return back_off_.attempt([&] { return read(record.bytes(), row, decoder, batch); });
}

// Calls `on_value(column, value)` for each column of each entry. Returns false if an
// entry is not plain, a requested key repeats, or a call returns false.
template <typename OnValue>
bool SequencePath::read_entries(Bytes entries, Map* map, OnValue&& on_value) {
  const std::uint8_t* const end = entries.data() + entries.size();
  std::size_t follower = 0;
  for (const std::uint8_t* p = entries.data(); p != end;) {
    Bytes key, value;
    p = read_plain_entry(p, end, &key, &value);
    if (p == nullptr) return false;
    const std::uint32_t number = map->keys.find(key, map->followers[follower]);
    if (number == KeyTable::kNone) continue;
    map->followers[follower] = number;
    follower = number + 1;
    if (std::exchange(map->marks[number], n_records_) == n_records_) return false;
    ++n_found_;
    for (const std::uint32_t column : map->columns[number]) {
      if (!on_value(column, value)) return false;
    }
  }
  return true;
}

bool SequencePath::read(Bytes record, std::size_t row, FeatureDecoder* decoder,
                        BatchBuilder* batch) {
  const std::uint8_t* p = record.data();
  const std::uint8_t* const end = p + record.size();
  Bytes context, lists;
  if (p != end && *p == kTagOne) p = read_plain_field(p, end, kTagOne, &context);
  if (p != nullptr && p != end) p = read_plain_field(p, end, kTagTwo, &lists);
  if (p != end) return false;

  ++n_records_;
  n_found_ = 0;
  for (const std::uint32_t column : record_columns_)
    batch->append_string(column, record);
  const auto decode_feature = [&](std::uint32_t column, Bytes feature) {
    return !decoder->decode(column, feature, row, batch);
  };
  const auto decode_list = [&](std::uint32_t column, Bytes list) {
    const StepsRead steps =
        append_plain_steps(schema_.columns[column], column, list, batch);
    return !decode_steps(schema_, column, list, steps, decoder->joined(), batch);
  };
  if (!read_entries(context, &context_, decode_feature) ||
      !read_entries(lists, &lists_, decode_list)) {
    return false;
  }
  if (n_found_ == context_.keys.size() + lists_.keys.size()) return true;
  if (n_found_ == 0) return false;  // may be a record of another kind

  const auto missing = [&](const Map& map, auto&& fill) {
    for (std::size_t number = 0; number < map.keys.size(); ++number) {
      if (map.marks[number] == n_records_) continue;
      if (!std::ranges::all_of(map.columns[number], fill)) return false;
    }
    return true;
  };
  return missing(context_,
                 [&](std::uint32_t column) {
                   return !decoder->fill_missing(column, row, batch);
                 }) &&
         missing(lists_, [&](std::uint32_t column) {
           return !schema_.columns[column].is_required && decode_list(column, {});
         });
}

}  // namespace fastrec
