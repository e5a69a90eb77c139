#include "example/infer.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "example/values.h"

namespace fastrec {
namespace {

template <typename T>
void widen(T value, T* least, T* most) {
  *least = std::min(*least, value);
  *most = std::max(*most, value);
}

bool has_field_2(Bytes record) {
  FieldReader fields(record);
  Field field;
  while (fields.next(&field)) {
    if (field.number == 2 && field.type == WireType::kLengthDelimited) return true;
  }
  return false;
}

// What one record holds of a feature.
struct Sighting {
  FeatureKind kind = FeatureKind::kNone;
  FeatureSurvey values;  // as if there were no other record
};

// Decodes all numbers in `list` and passes them to `on_value`.
template <typename T, typename OnValue>
Fault for_each_number(const ValueList& list, std::size_t n, DType dtype,
                      OnValue&& on_value) {
  std::vector<T> values(n);
  auto* target = reinterpret_cast<std::uint8_t*>(values.data());
  if (Fault fault = decode_numbers(list, n, dtype, target)) return fault;
  for (const T value : values) on_value(value);
  return {};
}

// Looks at all values of `list`, so that none can fail any more.
Fault look_at(const ValueList& list, Sighting* sighting) {
  sighting->kind = list.kind;
  if (list.kind == FeatureKind::kNone) return {};
  std::size_t n;
  if (Fault fault = count_values(list, &n)) return fault;
  FeatureSurvey& values = sighting->values;
  values.n_values = values.n_values_min = values.n_values_max = n;

  if (list.kind == FeatureKind::kInt64) {
    values.n_ranged = n;
    return for_each_number<std::int64_t>(
        list, n, DType::kInt64,
        [&](std::int64_t value) { widen(value, &values.int_min, &values.int_max); });
  }
  if (list.kind == FeatureKind::kFloat) {
    return for_each_number<float>(list, n, DType::kFloat32, [&](float value) {
      if (std::isnan(value)) return;
      ++values.n_ranged;
      widen<double>(value, &values.float_min, &values.float_max);
    });
  }
  values.n_ranged = n;
  FieldReader fields(list.message);
  Field field;
  while (fields.next(&field)) {
    if (field.number != 1 || field.type != WireType::kLengthDelimited) continue;
    widen<std::uint64_t>(field.content.size(), &values.bytes_min, &values.bytes_max);
  }
  return {};
}

// Adds to `survey` what was seen in record `number`.
void add_to(FeatureSurvey* survey, const Sighting& sighting, std::uint64_t number) {
  const auto kind = static_cast<std::size_t>(sighting.kind);
  const FeatureSurvey& seen = sighting.values;
  const bool is_first = survey->n_present() == 0;
  if (survey->n_records[kind]++ == 0) survey->first_record[kind] = number;
  if (sighting.kind == FeatureKind::kNone) return;

  if (is_first) survey->n_values_min = seen.n_values_min;
  widen(seen.n_values, &survey->n_values_min, &survey->n_values_max);
  survey->n_values += seen.n_values;
  survey->n_ranged += seen.n_ranged;
  survey->int_min = std::min(survey->int_min, seen.int_min);
  survey->int_max = std::max(survey->int_max, seen.int_max);
  survey->float_min = std::min(survey->float_min, seen.float_min);
  survey->float_max = std::max(survey->float_max, seen.float_max);
  survey->bytes_min = std::min(survey->bytes_min, seen.bytes_min);
  survey->bytes_max = std::max(survey->bytes_max, seen.bytes_max);
}

}  // namespace

Fault Survey::add(Bytes record) {
  joined_.clear();
  // The last entry of a key is the one that counts, so entries are collected first.
  std::map<std::string_view, Bytes> last;
  Fault fault = walk_features(record, &joined_, [&](Bytes key, Bytes feature) {
    last[as_text(key)] = feature;
  });
  if (fault) return fault;
  // Nothing is added before everything was read.
  std::vector<Sighting> sightings;
  sightings.reserve(last.size());
  for (const auto& [key, feature] : last) {
    ValueList list;
    fault = find_list(feature, &joined_, &list);
    if (!fault) fault = look_at(list, &sightings.emplace_back());
    if (fault) return fault;
  }

  auto sighting = sightings.begin();
  for (const auto& [key, feature] : last) {
    add_to(&features_[std::string(key)], *sighting++, n_records_);
  }
  n_sequences_ += has_field_2(record);
  ++n_records_;
  return {};
}

}  // namespace fastrec
