#include "bindings/row.h"

#include <pybind11/critical_section.h>

#include <algorithm>
#include <string>
#include <utility>

namespace fastrec {

void Row::clear() noexcept {
  features_.clear();
  counts_.clear();
  keys_.clear();
  lists_.clear();
  list_values_.clear();
  new_features_.clear();
  label_.is_list = false;
  values_.clear();
  converted_.clear();
}

// Calls `on_item(key, value)` for each item. Throws if two keys have the same bytes.
template <typename OnItem>
void Row::for_each(py::handle mapping, const char* what, const OnItem& on_item) {
  py::dict row;
  if (PyDict_Check(mapping.ptr())) {
    row = py::reinterpret_borrow<py::dict>(mapping);
  } else if (py::hasattr(mapping, "keys")) {
    if (PyDict_Update(row.ptr(), mapping.ptr()) != 0) throw py::error_already_set();
  } else {
    throw py::type_error(std::string(what) +
                         " must be a mapping of feature names to values, got " +
                         type_name(mapping));
  }

  std::vector<Bytes> bytes;
  {
    const py::scoped_critical_section guard(row);
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(row.ptr(), &position, &key, &value)) {
      // Converting a value can run Python code, which can change the mapping.
      values_.keep_alive(key);
      values_.keep_alive(value);
      label_.key = key;
      if (!PyUnicode_Check(key) && !PyBytes_Check(key)) {
        throw py::type_error("a feature name must be str or bytes, got " +
                             type_name(key));
      }
      // "a" and b"a" differ in a dict, but not in an Example.
      if (PyBytes_Check(key)) bytes.push_back(bytes_of(key));
      on_item(key, value);
    }
  }
  if (bytes.empty()) return;
  for (const Bytes name : bytes) {
    const auto text = py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(name.data()),
                             static_cast<Py_ssize_t>(name.size()), nullptr));
    if (!text) {
      PyErr_Clear();  // cannot equal a str
    } else if (row.contains(text)) {
      throw py::value_error(std::string(what) + " has the feature '" +
                            std::string(as_text(name)) +
                            "' twice, as str and as bytes");
    }
  }
}

void Row::fill(py::handle mapping, FeatureOrder* order) {
  is_sequence_ = false;
  for_each(mapping, "a row",
           [this](py::handle key, py::handle value) { add_feature(key, value); });
  n_context_ = features_.size();
  view_values();
  apply_order(order, nullptr);
}

void Row::fill(py::handle context, py::handle lists, SequenceOrder* order) {
  is_sequence_ = true;
  for_each(context, "context",
           [this](py::handle key, py::handle value) { add_feature(key, value); });
  n_context_ = features_.size();
  label_.is_list = true;
  for_each(lists, "feature_lists",
           [this](py::handle key, py::handle steps) { add_steps(key, steps); });
  view_values();
  apply_order(order == nullptr ? nullptr : &order->context,
              order == nullptr ? nullptr : &order->lists);
}

std::uint64_t Row::measure() {
  const std::span context(features_.data(), n_context_);
  return is_sequence_ ? encoder_.measure(context, list_values_)
                      : encoder_.measure(context);
}

// Points every feature to its values, which no longer move.
void Row::view_values() {
  std::size_t n_strings = 0, n_floats = 0, n_ints = 0;
  for (std::size_t i = 0; i < features_.size(); ++i) {
    const std::size_t count = counts_[i];
    switch (features_[i].kind) {
      case FeatureKind::kBytes:
        features_[i].strings = {values_.strings() + n_strings, count};
        n_strings += count;
        break;
      case FeatureKind::kFloat:
        features_[i].floats = {values_.floats() + n_floats, count};
        n_floats += count;
        break;
      case FeatureKind::kInt64:
        features_[i].ints = {values_.ints() + n_ints, count};
        n_ints += count;
        break;
      case FeatureKind::kNone:
        break;
    }
  }
}

// Converts a feature to the kind that it has in other records.
void Row::set_kind(std::size_t feature, FeatureKind kind) {
  FeatureValues& values = features_[feature];
  if (values.kind == kind) return;
  if (counts_[feature] != 0) {
    if (values.kind != FeatureKind::kInt64 || kind != FeatureKind::kFloat) {
      throw py::value_error(label_.text() + " has " + kind_name(values.kind) +
                            " values, but had " + kind_name(kind) +
                            " values before; a feature must have one kind in all "
                            "records of a file");
    }
    values.floats = converted_.emplace_back(values.ints.begin(), values.ints.end());
  }
  values.kind = kind;
}

// Applies the kinds and the order of earlier rows, or throws. Registers new features
// only if everything else succeeded.
void Row::apply_order(FeatureOrder* features, FeatureOrder* lists) {
  label_.is_list = true;
  for (std::size_t n = 0; n < lists_.size(); ++n) order_list(n, lists);
  label_.is_list = false;
  positions_.clear();
  for (std::size_t i = 0; i < n_context_; ++i) order_feature(i, features);
  for (const NewFeature& feature : new_features_) {
    const auto [position, kind] = feature.order->place(feature.key, feature.kind);
    label_.key = feature.name;
    // Another thread may have registered it first.
    for (std::size_t i = feature.begin; i < feature.end; ++i) set_kind(i, kind);
  }
  sort_features();
  std::sort(lists_.begin(), lists_.end(),
            [](const List& a, const List& b) { return a.position < b.position; });
  for (const List& list : lists_) {
    list_values_.push_back(
        {list.key, std::span(features_).subspan(list.begin, list.end - list.begin)});
  }
}

void Row::order_feature(std::size_t i, FeatureOrder* order) {
  constexpr const char* kHint =
      " is an empty list of unknown kind; write np.array([], \"int64\"), "
      "np.array([], \"float32\") or fastrec.BytesArray.from_list([]), or pass its spec "
      "to Writer(features=...)";
  label_.key = keys_[i];
  FeatureValues& values = features_[i];
  if (order != nullptr) {
    const auto [position, kind] = order->place(values.key, FeatureKind::kNone);
    positions_.push_back(position);
    if (kind != FeatureKind::kNone) {
      set_kind(i, kind);
    } else if (counts_[i] != 0) {
      new_features_.push_back({order, values.key, values.kind, label_.key, i, i + 1});
    }
  }
  if (values.kind == FeatureKind::kNone) throw py::value_error(label_.text() + kHint);
}

void Row::order_list(std::size_t n, FeatureOrder* order) {
  List& list = lists_[n];
  // A list without steps has no feature that holds its key.
  label_.key = list.name;
  FeatureKind found = FeatureKind::kNone;
  for (std::size_t i = list.begin; i < list.end; ++i) {
    const FeatureKind kind = features_[i].kind;
    if (counts_[i] == 0) continue;
    if (found == FeatureKind::kNone) found = kind;
    if (kind != found) {
      throw py::value_error(label_.text() + " has steps of " + kind_name(found) +
                            " and of " + kind_name(kind) +
                            " values; all steps must have one kind");
    }
  }
  list.position = n;
  if (order != nullptr) {
    const auto [position, kind] = order->place(list.key, FeatureKind::kNone);
    list.position = position;
    if (kind != FeatureKind::kNone) {
      found = kind;
    } else if (found != FeatureKind::kNone) {
      new_features_.push_back(
          {order, list.key, found, list.name, list.begin, list.end});
    }
  }
  if (found == FeatureKind::kNone) return;
  for (std::size_t i = list.begin; i < list.end; ++i) set_kind(i, found);
}

void Row::sort_features() {
  if (std::is_sorted(positions_.begin(), positions_.end())) return;
  // Moves only the views: counts and keys are not needed any more.
  std::vector<std::pair<std::size_t, FeatureValues>> sorted;
  for (std::size_t i = 0; i < n_context_; ++i) {
    sorted.emplace_back(positions_[i], features_[i]);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < n_context_; ++i) features_[i] = sorted[i].second;
}

void Row::add_feature(py::handle key, py::handle value) {
  features_.emplace_back().key = values_.view_of_string(key);
  counts_.push_back(0);
  keys_.push_back(key);
  const RowValues::Added added = values_.add(value);
  features_.back().kind = added.kind;
  counts_.back() = added.count;
}

void Row::add_steps(py::handle key, py::handle steps) {
  const bool is_iterable = !PyUnicode_Check(steps.ptr()) &&
                           !PyBytes_Check(steps.ptr()) && !PyDict_Check(steps.ptr()) &&
                           py::isinstance<py::iterable>(steps);
  if (!is_iterable) {
    throw py::type_error(label_.text() + " must be an iterable of steps, got " +
                         type_name(steps));
  }
  List list = {features_.size(), 0, values_.view_of_string(key), key, 0};
  for (const py::handle step : steps) {
    values_.keep_alive(step);
    add_feature(key, step);
  }
  list.end = features_.size();
  lists_.push_back(list);
}

}  // namespace fastrec
