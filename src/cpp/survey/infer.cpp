#include "survey/infer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "decode/values.h"
#include "survey/foreign.h"

namespace fastrec {
namespace {

// The entries of a map by key. The last entry of a key counts, so they are collected
// before they are decoded.
using Entries = std::map<std::string_view, Bytes>;

template <typename T>
void widen(T value, T* min, T* max) {
  *min = std::min(*min, value);
  *max = std::max(*max, value);
}

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

// Decodes all values of `feature` into an empty survey.
Fault survey_feature(Bytes feature, JoinedMessages* joined, FeatureSurvey* seen) {
  ValueList list;
  if (Fault fault = find_list(feature, joined, &list)) return fault;
  seen->n_of_kind[static_cast<std::size_t>(list.kind)] = 1;
  if (list.kind == FeatureKind::kNone) return {};
  std::size_t n;
  if (Fault fault = count_values(list, &n)) return fault;
  seen->n_values = seen->n_values_min = seen->n_values_max = n;

  if (list.kind == FeatureKind::kInt64) {
    seen->n_ranged = n;
    return for_each_number<std::int64_t>(
        list, n, DType::kInt64,
        [&](std::int64_t value) { widen(value, &seen->int_min, &seen->int_max); });
  }
  if (list.kind == FeatureKind::kFloat) {
    return for_each_number<float>(list, n, DType::kFloat32, [&](float value) {
      if (std::isnan(value)) return;
      ++seen->n_ranged;
      widen<double>(value, &seen->float_min, &seen->float_max);
    });
  }
  seen->n_ranged = n;
  for_each_string(list.message, [&](Bytes value) {
    widen<std::uint64_t>(value.size(), &seen->bytes_min, &seen->bytes_max);
    seen->format = common_format(seen->format, format_of(value));
    if (const std::optional<ImageSize> size = image_size_of(value)) {
      ++seen->n_images;
      seen->widen_images(*size, *size);
    }
    const bool may_be_array = n == 1 && (seen->format == ByteFormat::kOther ||
                                         seen->format == ByteFormat::kText);
    if (!may_be_array) return;
    seen->arrays.add(value);
    seen->tensors.add(value);
  });
  return {};
}

// Decodes all steps of a feature list into an empty survey.
Fault survey_list(Bytes list, JoinedMessages* joined, ListSurvey* seen) {
  std::uint64_t n_steps = 0;
  FieldReader fields(list);
  Bytes step;
  while (fields.next_message(1, &step)) {
    FeatureSurvey values;
    if (Fault fault = survey_feature(step, joined, &values)) return fault;
    seen->steps.merge(values);
    ++n_steps;
  }
  seen->n_records = 1;
  seen->n_steps_min = seen->n_steps_max = n_steps;
  return fields.fault();
}

// Whether `seen` would have at most `n_max` keys after adding `entries`.
template <typename Added, typename Seen>
bool has_room(const Added& entries, const Seen& seen, std::size_t n_max) {
  if (seen.size() + entries.size() <= n_max) return true;
  const auto is_new = [&](const auto& entry) {
    return seen.find(std::string(entry.first)) == seen.end();
  };
  const auto n_new = std::count_if(entries.begin(), entries.end(), is_new);
  return seen.size() + static_cast<std::size_t>(n_new) <= n_max;
}

using Lists = std::vector<std::pair<std::string_view, ListSurvey>>;

// Whether `record`, whose fields are valid, has feature lists. Appends them to
// `*lists`, but not all if there are more than `n_max`.
bool find_lists(Bytes record, std::size_t n_max, JoinedMessages* joined, Lists* lists) {
  bool has_field = false, is_empty = true;
  FieldReader fields(record);
  Bytes lists_of_record;
  while (fields.next_message(2, &lists_of_record)) {
    has_field = true;
    is_empty = is_empty && lists_of_record.empty();
  }
  if (!has_field) return false;
  Entries last;
  Fault fault = walk_maps<2>(record, joined, [&](std::uint32_t n, Bytes key, Bytes v) {
    if (n == 2 && last.size() <= n_max) last[as_text(key)] = v;
  });
  if (fault) return false;
  lists->reserve(last.size());
  for (const auto& [key, list] : last) {
    lists->emplace_back(key, ListSurvey());
    if (survey_list(list, joined, &lists->back().second)) return false;
  }
  return is_empty || !last.empty();
}

}  // namespace

void FeatureSurvey::widen_images(ImageSize min, ImageSize max) {
  image_min = {
      std::min(image_min.width, min.width), std::min(image_min.height, min.height),
      std::min(image_min.channels, min.channels), std::min(image_min.bits, min.bits)};
  image_max = {
      std::max(image_max.width, max.width), std::max(image_max.height, max.height),
      std::max(image_max.channels, max.channels), std::max(image_max.bits, max.bits)};
}

void FeatureSurvey::merge(const FeatureSurvey& other) {
  for (std::size_t kind = 0; kind < std::size(n_of_kind); ++kind) {
    n_of_kind[kind] += other.n_of_kind[kind];
  }
  n_values_min = std::min(n_values_min, other.n_values_min);
  n_values_max = std::max(n_values_max, other.n_values_max);
  n_values += other.n_values;
  n_ranged += other.n_ranged;
  int_min = std::min(int_min, other.int_min);
  int_max = std::max(int_max, other.int_max);
  float_min = std::min(float_min, other.float_min);
  float_max = std::max(float_max, other.float_max);
  bytes_min = std::min(bytes_min, other.bytes_min);
  bytes_max = std::max(bytes_max, other.bytes_max);
  format = common_format(format, other.format);
  n_images += other.n_images;
  widen_images(other.image_min, other.image_max);
  arrays.merge(other.arrays);
  tensors.merge(other.tensors);
}

void ListSurvey::merge(const ListSurvey& other) {
  n_records += other.n_records;
  n_steps_min = std::min(n_steps_min, other.n_steps_min);
  n_steps_max = std::max(n_steps_max, other.n_steps_max);
  steps.merge(other.steps);
}

Fault Survey::add(Bytes record) {
  joined_.clear();
  Entries last;
  Fault fault = walk_features(record, &joined_, [&](Bytes key, Bytes feature) {
    if (last.size() <= features_max_) last[as_text(key)] = feature;
  });
  if (fault) {
    if (foreign_.empty()) foreign_ = describe_foreign(record);
    return fault;
  }
  const Fault too_many{.code = Errc::kTooManyFeatures, .expected = features_max_};
  if (!has_room(last, features_, features_max_)) return too_many;
  // A fault must leave the survey unchanged, so nothing is merged before the end.
  std::vector<FeatureSurvey> seen(last.size());
  auto of_feature = seen.begin();
  for (const auto& [key, feature] : last) {
    fault = survey_feature(feature, &joined_, &*of_feature++);
    if (fault) return located(fault, feature, record);
  }
  const bool has_values = std::ranges::any_of(
      seen, [](const auto& feature) { return feature.n_present(); });
  if (!has_values) {
    const std::string foreign = describe_foreign(record);
    if (foreign_.empty()) foreign_ = foreign;
    if (!foreign.empty()) return {.code = Errc::kNotExample};
  }
  Lists lists;
  const bool is_sequence = find_lists(record, features_max_, &joined_, &lists);
  if (is_sequence && !has_room(lists, lists_, features_max_)) return too_many;

  of_feature = seen.begin();
  for (const auto& [key, feature] : last) {
    features_[std::string(key)].merge(*of_feature++);
  }
  if (is_sequence) {
    for (const auto& [key, list] : lists) lists_[std::string(key)].merge(list);
    ++n_sequences_;
  }
  ++n_records_;
  return {};
}

}  // namespace fastrec
