#include "decode/values.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

#include "wire/packed.h"
#include "wire/plain.h"

namespace fastrec {
namespace {

// The number of values that are converted at a time, on the stack.
constexpr std::size_t kPieceValues = 256;

// Stores integers of at most `kMax`, and advances `*target`.
template <typename Int, Int kMax = std::numeric_limits<Int>::max()>
Fault store_as(const std::int64_t* values, std::size_t n, std::uint8_t** target) {
  std::uint8_t* const first = *target;  // a copy: stores cannot alias it
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::in_range<Int>(values[i]) || std::cmp_greater(values[i], kMax)) {
      return {.code = Errc::kValueOutOfRange,
              .found = static_cast<std::uint64_t>(values[i])};
    }
    const auto value = static_cast<Int>(values[i]);
    std::memcpy(first + i * sizeof value, &value, sizeof value);
  }
  *target = first + n * sizeof(Int);
  return {};
}

Fault store_int64(const std::int64_t* values, std::size_t n, DType dtype,
                  std::uint8_t** target) {
  switch (dtype) {
    case DType::kBool:
      return store_as<std::uint8_t, 1>(values, n, target);
    case DType::kInt8:
      return store_as<std::int8_t>(values, n, target);
    case DType::kInt16:
      return store_as<std::int16_t>(values, n, target);
    case DType::kInt32:
      return store_as<std::int32_t>(values, n, target);
    case DType::kUint8:
      return store_as<std::uint8_t>(values, n, target);
    case DType::kUint16:
      return store_as<std::uint16_t>(values, n, target);
    case DType::kUint32:
      return store_as<std::uint32_t>(values, n, target);
    case DType::kUint64:
      return store_as<std::uint64_t>(values, n, target);
    default:
      return store_as<std::int64_t>(values, n, target);
  }
}

// Decodes the first `n` values of `run` as Int, without conversion, and advances
// `*target`. Returns the end of the values, or nullptr.
template <typename Int>
const std::uint8_t* decode_directly(Bytes run, std::size_t n, std::uint8_t** target,
                                    Errc* errc) {
  assert(reinterpret_cast<std::uintptr_t>(*target) % alignof(Int) == 0);
  auto* const values = reinterpret_cast<Int*>(*target);
  *target += n * sizeof(Int);
  return decode_varints(run, n, values, errc);
}

// Decodes the first `n` values of `run`, and advances `*target`. Returns the end of the
// values, or nullptr with a fault; `*target` is then unspecified.
const std::uint8_t* decode_run_of_ints(Bytes run, std::size_t n, DType dtype,
                                       std::uint8_t** target, Fault* fault) {
  if (dtype == DType::kInt64) {
    return decode_directly<std::int64_t>(run, n, target, &fault->code);
  }
  if (dtype == DType::kInt32) {
    std::uint8_t* const first = *target;
    const std::uint8_t* after =
        decode_directly<std::int32_t>(run, n, target, &fault->code);
    if (after != nullptr || fault->code != Errc::kValueOutOfRange) return after;
    *target = first;  // decodes again, to find the value that is out of range
  }
  std::int64_t piece[kPieceValues];
  while (n > 0) {
    const std::size_t n_piece = std::min(n, kPieceValues);
    const std::uint8_t* after = decode_varints(run, n_piece, piece, &fault->code);
    if (after == nullptr) return nullptr;
    *fault = store_int64(piece, n_piece, dtype, target);
    if (*fault) return nullptr;
    run = run.subspan(static_cast<std::size_t>(after - run.data()));
    n -= n_piece;
  }
  return run.data();
}

template <typename Convert>
void convert_floats(Bytes run, std::uint8_t* target, Convert convert) {
  for (std::size_t i = 0; i < run.size() / sizeof(float); ++i) {
    const auto value =
        convert(std::bit_cast<float>(load_le<std::uint32_t>(&run[i * sizeof(float)])));
    std::memcpy(target + i * sizeof value, &value, sizeof value);
  }
}

// Returns the number of bytes written.
std::size_t decode_run_of_floats(Bytes run, DType dtype, std::uint8_t* target) {
  const std::size_t n = run.size() / sizeof(float);
  switch (dtype) {
    case DType::kFloat16:
      convert_floats(run, target, float16_bits);
      return n * sizeof(std::uint16_t);
    case DType::kBfloat16:
      convert_floats(run, target, bfloat16_bits);
      return n * sizeof(std::uint16_t);
    case DType::kFloat64:
      convert_floats(run, target, [](float value) { return double{value}; });
      return n * sizeof(double);
    default:
      if (!run.empty()) std::memcpy(target, run.data(), run.size());
      return run.size();
  }
}

// Adds a run of int64 of at most 8 bytes each. False if there are others.
bool append_short_ints(std::size_t column, Bytes run, BatchBuilder* batch,
                       std::size_t* n) {
  // The values of a short run are not counted first, so there must be room for one a
  // byte, which is 2 KiB at most.
  constexpr std::size_t kShortBytes = 256;
  const std::size_t n_max = run.size() <= kShortBytes ? run.size() : count_varints(run);
  GrowingArray& values = batch->values(column);
  auto* target = reinterpret_cast<std::int64_t*>(
      values.reserve((n_max + kSpareValues) * sizeof(std::int64_t)));
  *n = varint_kernel().decode_list(run.data(), run.size(), target);
  if (*n == kNotDecoded) return false;
  values.advance(*n * sizeof(std::int64_t));
  return true;
}

bool append_plain_numbers(const ColumnSpec& spec, std::size_t column, Bytes list,
                          BatchBuilder* batch, std::size_t* n) {
  Bytes run;
  if (!list.empty() && !find_plain_field(list, kTagOne, &run)) return false;
  if (spec.dtype == DType::kInt64 && append_short_ints(column, run, batch, n)) {
    return true;
  }
  *n = spec.kind == FeatureKind::kFloat ? run.size() / sizeof(float)
                                        : count_varints(run);
  std::uint8_t* target = batch->extend(column, *n * spec.item_bytes);
  if (decode_plain_numbers(run, spec.kind, *n, spec.dtype, target)) return true;
  batch->retract(column, *n);
  return false;
}

bool append_plain_strings(std::size_t column, Bytes list, BatchBuilder* batch,
                          std::size_t* n) {
  if (ShortStrings::can_hold(list)) {
    ShortStrings strings(column, list, batch);
    if (strings.append(list)) {
      strings.commit();
      *n = strings.size();
      return true;
    }
  }
  const std::uint8_t* const end = list.data() + list.size();
  std::size_t n_strings = 0;
  for (const std::uint8_t* p = list.data(); p != end; ++n_strings) {
    Bytes string;
    p = read_plain_field(p, end, kTagOne, &string);
    if (p == nullptr) {
      batch->retract(column, n_strings);
      return false;
    }
    batch->append_string(column, string, end);
  }
  *n = n_strings;
  return true;
}

}  // namespace

std::uint16_t float16_bits(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN: quiet, with the upper bits of its payload
    return static_cast<std::uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (magnitude < 0x38800000) {
    // Below the normal numbers of float16: adding 0.5 puts the bits that stay at the
    // end of the significand, and the addition itself rounds to even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(
        sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<std::uint16_t>(sign |
                                    ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

std::uint16_t bfloat16_bits(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) {  // NaN: quiet, with its upper bits
    return static_cast<std::uint16_t>((bits >> 16) | 0x0040);
  }
  // The upper half; what is cut off carries into it, infinity included.
  const std::uint32_t odd = (bits >> 16) & 1;
  return static_cast<std::uint16_t>((bits + 0x7fff + odd) >> 16);
}

bool decode_plain_numbers(Bytes run, FeatureKind kind, std::size_t n, DType dtype,
                          std::uint8_t* target) {
  if (kind == FeatureKind::kInt64) {
    Fault fault;
    return decode_run_of_ints(run, n, dtype, &target, &fault) ==
           run.data() + run.size();
  }
  if (run.size() != n * sizeof(float)) return false;
  decode_run_of_floats(run, dtype, target);
  return true;
}

bool append_plain_list(const ColumnSpec& spec, std::size_t column, Bytes list,
                       BatchBuilder* batch, std::size_t* n) {
  return spec.kind == FeatureKind::kBytes
             ? append_plain_strings(column, list, batch, n)
             : append_plain_numbers(spec, column, list, batch, n);
}

Fault find_list_of(const ColumnSpec& spec, Bytes feature, JoinedMessages* joined,
                   ValueList* list) {
  if (Fault fault = find_list(feature, joined, list)) return fault;
  if (list->kind == FeatureKind::kNone || list->kind == spec.kind) return {};
  return {.code = Errc::kFeatureKind,
          .found = static_cast<std::uint64_t>(list->kind),
          .expected = static_cast<std::uint64_t>(spec.kind)};
}

Fault decode_numbers(const ValueList& list, std::size_t n, DType dtype,
                     std::uint8_t* target) {
  Bytes run;
  PackedRuns runs(list.message, list.kind);
  if (list.kind == FeatureKind::kFloat) {
    while (runs.next(&run)) target += decode_run_of_floats(run, dtype, target);
    return {};
  }
  while (n > 0 && runs.next(&run)) {
    const std::size_t n_run = count_varints(run);
    Fault fault;
    if (decode_run_of_ints(run, n_run, dtype, &target, &fault) == nullptr) return fault;
    n -= n_run;
  }
  return {};
}

}  // namespace fastrec
