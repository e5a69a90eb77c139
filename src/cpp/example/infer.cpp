#include "example/infer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "example/values.h"

namespace fastrec {
namespace {

template <typename T>
void widen(T value, bool is_first, T* least, T* most) {
  *least = is_first ? value : std::min(*least, value);
  *most = is_first ? value : std::max(*most, value);
}

bool has_field_2(Bytes record) {
  FieldReader fields(record);
  Field field;
  while (fields.next(&field)) {
    if (field.number == 2 && field.type == WireType::kLengthDelimited) return true;
  }
  return false;
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
  std::vector<ValueList> lists;
  for (const auto& [key, feature] : last) {
    ValueList list;
    std::size_t n;
    fault = find_list(feature, &joined_, &list);
    if (!fault && list.kind != FeatureKind::kNone) fault = count_values(list, &n);
    if (fault) return fault;
    lists.push_back(list);
  }

  auto list = lists.begin();
  for (const auto& [key, feature] : last) {
    FeatureSurvey& survey = features_[std::string(key)];
    fault = add_feature(*list++, &survey);
    if (fault) return fault;
  }
  n_sequences_ += has_field_2(record);
  ++n_records_;
  return {};
}

Fault Survey::add_feature(const ValueList& list, FeatureSurvey* survey) const {
  const auto kind = static_cast<std::size_t>(list.kind);
  if (survey->n_records[kind] == 0) survey->first_record[kind] = n_records_;
  const bool is_first_list = survey->n_present() == 0;
  ++survey->n_records[kind];
  if (list.kind == FeatureKind::kNone) return {};

  std::size_t n;
  if (Fault fault = count_values(list, &n)) return fault;
  widen<std::uint64_t>(n, is_first_list, &survey->n_values_min, &survey->n_values_max);
  bool is_first = survey->n_values == 0;
  survey->n_values += n;

  if (list.kind == FeatureKind::kBytes) {
    FieldReader fields(list.message);
    Field field;
    while (fields.next(&field)) {
      if (field.number != 1 || field.type != WireType::kLengthDelimited) continue;
      widen<std::uint64_t>(field.content.size(), is_first, &survey->bytes_min,
                           &survey->bytes_max);
      is_first = false;
    }
  } else if (list.kind == FeatureKind::kInt64) {
    std::vector<std::int64_t> values(n);
    if (Fault fault = decode_numbers(list, n, DType::kInt64,
                                     reinterpret_cast<std::uint8_t*>(values.data()))) {
      return fault;
    }
    for (const std::int64_t value : values) {
      widen(value, is_first, &survey->int_min, &survey->int_max);
      is_first = false;
    }
  } else {
    std::vector<float> values(n);
    if (Fault fault = decode_numbers(list, n, DType::kFloat32,
                                     reinterpret_cast<std::uint8_t*>(values.data()))) {
      return fault;
    }
    for (const float value : values) {
      if (std::isnan(value)) continue;
      widen<double>(value, is_first, &survey->float_min, &survey->float_max);
      is_first = false;
    }
  }
  return {};
}

}  // namespace fastrec
