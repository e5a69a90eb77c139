#include "bindings/row.h"

#include <pybind11/critical_section.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

namespace fastrec {
namespace {

std::string type_name(py::handle value) {
  return py::str(py::type::of(value).attr("__name__"));
}

// numpy.generic, the class of NumPy's scalars.
bool is_numpy_scalar(py::handle value) {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<py::object> generic;
  generic.call_once_and_store_result(
      [] { return py::module_::import("numpy").attr("generic"); });
  return py::isinstance(value, generic.get_stored());
}

}  // namespace

void Row::clear() noexcept {
  features_.clear();
  counts_.clear();
  keys_.clear();
  lists_.clear();
  list_values_.clear();
  met_.clear();
  is_step_ = false;
  strings_.clear();
  floats_.clear();
  ints_.clear();
  converted_.clear();
  owners_.clear();
  buffers_.clear();
}

std::string Row::where() const {
  return (is_step_ ? "feature list " : "feature ") +
         std::string(py::str(py::repr(key_)));
}

// Calls `on_item(key, value)` for each, and refuses keys that are equal in a message.
template <typename OnItem>
void Row::for_each(py::handle mapping, const char* what, const OnItem& on_item) {
  py::dict row;
  if (PyDict_Check(mapping.ptr())) {
    row = py::reinterpret_borrow<py::dict>(mapping);
  } else if (py::hasattr(mapping, "keys")) {
    if (PyDict_Update(row.ptr(), mapping.ptr()) != 0) throw py::error_already_set();
  } else {
    throw py::type_error(std::string(what) +
                         " is a mapping of feature names to values, not " +
                         type_name(mapping));
  }

  std::vector<Bytes> bytes;
  {
    const py::scoped_critical_section guard(row);
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(row.ptr(), &position, &key, &value)) {
      // Converting a value can run Python code, which can change the mapping.
      owners_.push_back(py::reinterpret_borrow<py::object>(key));
      owners_.push_back(py::reinterpret_borrow<py::object>(value));
      key_ = key;
      if (!PyUnicode_Check(key) && !PyBytes_Check(key)) {
        throw py::type_error("a feature's name is str or bytes, not " + type_name(key));
      }
      // A dict tells "a" from b"a"; an Example does not.
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
      PyErr_Clear();  // no str can be the same
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
  settle(order, nullptr);
}

void Row::fill(py::handle context, py::handle lists, SequenceOrder* order) {
  is_sequence_ = true;
  for_each(context, "context",
           [this](py::handle key, py::handle value) { add_feature(key, value); });
  n_context_ = features_.size();
  is_step_ = true;
  for_each(lists, "feature_lists",
           [this](py::handle key, py::handle steps) { add_steps(key, steps); });
  view_values();
  settle(order == nullptr ? nullptr : &order->context,
         order == nullptr ? nullptr : &order->lists);
}

std::uint64_t Row::measure() {
  const std::span context(features_.data(), n_context_);
  return is_sequence_ ? encoder_.measure(context, list_values_)
                      : encoder_.measure(context);
}

void Row::store(std::uint8_t* out) const noexcept {
  const std::span context(features_.data(), n_context_);
  is_sequence_ ? encoder_.store(context, list_values_, out)
               : encoder_.store(context, out);
}

// Points every feature at its values: only now do these stay where they are.
void Row::view_values() {
  std::size_t n_strings = 0, n_floats = 0, n_ints = 0;
  for (std::size_t i = 0; i < features_.size(); ++i) {
    const std::size_t count = counts_[i];
    switch (features_[i].kind) {
      case FeatureKind::kBytes:
        features_[i].strings = {strings_.data() + n_strings, count};
        n_strings += count;
        break;
      case FeatureKind::kFloat:
        features_[i].floats = {floats_.data() + n_floats, count};
        n_floats += count;
        break;
      case FeatureKind::kInt64:
        features_[i].ints = {ints_.data() + n_ints, count};
        n_ints += count;
        break;
      case FeatureKind::kNone:
        break;
    }
  }
}

// Makes a feature be of the kind that it is in other records.
void Row::give_kind(std::size_t feature, FeatureKind kind) {
  FeatureValues& values = features_[feature];
  if (values.kind == kind) return;
  if (counts_[feature] != 0) {
    if (values.kind != FeatureKind::kInt64 || kind != FeatureKind::kFloat) {
      throw py::value_error(where() + " has " + kind_name(values.kind) +
                            " values, but had " + kind_name(kind) +
                            " before: a feature has one kind in all records of a file");
    }
    values.floats = converted_.emplace_back(values.ints.begin(), values.ints.end());
  }
  values.kind = kind;
}

// Gives features the kinds and the order of the rows before, or throws; then, and only
// then, the rows to come are told of them.
void Row::settle(FeatureOrder* features, FeatureOrder* lists) {
  is_step_ = true;
  for (std::size_t n = 0; n < lists_.size(); ++n) settle_list(n, lists);
  is_step_ = false;
  positions_.clear();
  for (std::size_t i = 0; i < n_context_; ++i) settle_feature(i, features);
  for (const Met& met : met_) {
    const auto [position, kind] = met.order->place(met.key, met.kind);
    key_ = met.name;
    // Another thread may have been first.
    for (std::size_t i = met.begin; i < met.end; ++i) give_kind(i, kind);
  }
  sort_features();
  std::sort(lists_.begin(), lists_.end(),
            [](const List& a, const List& b) { return a.position < b.position; });
  for (const List& list : lists_) {
    list_values_.push_back(
        {list.key, std::span(features_).subspan(list.begin, list.end - list.begin)});
  }
}

void Row::settle_feature(std::size_t i, FeatureOrder* order) {
  constexpr const char* kCure =
      " is an empty list, whose kind is unknown: write np.array([], \"int64\"), "
      "np.array([], \"float32\") or fastrec.BytesArray.from_list([]), or say what it "
      "is with Writer(features=...)";
  key_ = keys_[i];
  FeatureValues& values = features_[i];
  if (order != nullptr) {
    const auto [position, kind] = order->place(values.key, FeatureKind::kNone);
    positions_.push_back(position);
    if (kind != FeatureKind::kNone) {
      give_kind(i, kind);
    } else if (counts_[i] != 0) {
      met_.push_back({order, values.key, values.kind, key_, i, i + 1});
    }
  }
  if (values.kind == FeatureKind::kNone) throw py::value_error(where() + kCure);
}

void Row::settle_list(std::size_t n, FeatureOrder* order) {
  List& list = lists_[n];
  // Lists without steps have no feature to say whose they are.
  key_ = list.name;
  FeatureKind found = FeatureKind::kNone;
  for (std::size_t i = list.begin; i < list.end; ++i) {
    const FeatureKind kind = features_[i].kind;
    if (counts_[i] == 0) continue;
    if (found == FeatureKind::kNone) found = kind;
    if (kind != found) {
      throw py::value_error(where() + " has steps of " + kind_name(found) + " and of " +
                            kind_name(kind) + ": make all steps the same");
    }
  }
  list.position = n;
  if (order != nullptr) {
    const auto [position, kind] = order->place(list.key, FeatureKind::kNone);
    list.position = position;
    if (kind != FeatureKind::kNone) {
      found = kind;
    } else if (found != FeatureKind::kNone) {
      met_.push_back({order, list.key, found, list.name, list.begin, list.end});
    }
  }
  if (found == FeatureKind::kNone) return;
  for (std::size_t i = list.begin; i < list.end; ++i) give_kind(i, found);
}

void Row::sort_features() {
  if (std::is_sorted(positions_.begin(), positions_.end())) return;
  // Only the views of the features move: nobody needs counts and keys any more.
  std::vector<std::pair<std::size_t, FeatureValues>> sorted;
  for (std::size_t i = 0; i < n_context_; ++i) {
    sorted.emplace_back(positions_[i], features_[i]);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < n_context_; ++i) features_[i] = sorted[i].second;
}

void Row::add_feature(py::handle key, py::handle value) {
  features_.emplace_back().key = view_of_string(key);
  counts_.push_back(0);
  keys_.push_back(key);
  overflowed_ = false;
  add_value(value);
  if (overflowed_) warn_of_overflow();
}

void Row::add_steps(py::handle key, py::handle steps) {
  const bool is_iterable = !PyUnicode_Check(steps.ptr()) &&
                           !PyBytes_Check(steps.ptr()) && !PyDict_Check(steps.ptr()) &&
                           py::isinstance<py::iterable>(steps);
  if (!is_iterable) {
    throw py::type_error(where() + ": a feature list is an iterable of steps, not " +
                         type_name(steps));
  }
  List list = {features_.size(), 0, view_of_string(key), key, 0};
  for (const py::handle step : steps) {
    owners_.push_back(py::reinterpret_borrow<py::object>(step));
    add_feature(key, step);
  }
  list.end = features_.size();
  lists_.push_back(list);
}

void Row::set(FeatureKind kind, std::size_t count) {
  features_.back().kind = kind;
  counts_.back() = count;
}

void Row::add_value(py::handle value) {
  if (py::isinstance<py::array>(value)) {
    const auto array = py::reinterpret_borrow<py::array>(value);
    const auto count = static_cast<std::size_t>(array.size());
    if (array.ndim() > 1) {
      throw py::value_error(where() + " is an array of " +
                            std::to_string(array.ndim()) +
                            " dimensions: write its bytes with .tobytes(), or say how "
                            "it is written with Writer(features=...), for example " +
                            "fr.Raw(" + std::string(py::repr(array.attr("shape"))) +
                            ", '" + std::string(py::str(array.dtype())) + "')");
    }
    set(add_number_array(array), count);
  } else if (const FeatureKind kind = add_item(value); kind != FeatureKind::kNone) {
    set(kind, 1);
  } else if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) {
    add_list(value);
  } else if (py::hasattr(value, "data") && py::hasattr(value, "offsets")) {
    add_bytes_array(value);
  } else if (value.is_none()) {
    throw py::type_error(where() + " is None: leave it out of the row");
  } else {
    throw py::type_error(where() + ": a value of type " + type_name(value) +
                         " cannot be written; numbers, strings, lists of them and "
                         "NumPy arrays can");
  }
}

// Adds one value that is not a list; returns kNone and adds nothing if it is no value.
FeatureKind Row::add_item(py::handle item) {
  PyObject* object = item.ptr();
  if (PyLong_Check(object)) {  // bool and IntEnum are ints, too
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0) {
      throw py::value_error(where() +
                            " has an integer outside of int64; of an unsigned "
                            "one, the bits can be written with "
                            "np.uint64(value).view(\"int64\")");
    }
    if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
    ints_.push_back(value);
    return FeatureKind::kInt64;
  }
  if (PyFloat_Check(object)) {
    floats_.push_back(narrow(PyFloat_AS_DOUBLE(object)));
    return FeatureKind::kFloat;
  }
  if (PyBytes_Check(object) || PyUnicode_Check(object) || PyByteArray_Check(object) ||
      PyMemoryView_Check(object)) {
    strings_.push_back(view_of_string(item));
    return FeatureKind::kBytes;
  }
  if (is_numpy_scalar(item)) {
    return add_number_array(py::array::ensure(item));
  }
  if (py::isinstance<py::array>(item)) {
    const auto array = py::reinterpret_borrow<py::array>(item);
    if (array.ndim() == 0) return add_number_array(array);
  }
  return FeatureKind::kNone;
}

Bytes Row::view_of_string(py::handle string) {
  PyObject* object = string.ptr();
  if (PyBytes_Check(object)) return bytes_of(string);
  if (PyUnicode_Check(object)) {
    Py_ssize_t size;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) {
      PyErr_Clear();
      throw py::value_error(where() +
                            " has text that UTF-8 cannot express; encode it "
                            "to bytes, for example with "
                            ".encode(errors=\"surrogateescape\")");
    }
    return as_bytes({text, static_cast<std::size_t>(size)});
  }
  if (PyMemoryView_Check(object)) {
    const Py_buffer* view = PyMemoryView_GET_BUFFER(object);
    if (view->itemsize != 1 || !PyBuffer_IsContiguous(view, 'C')) {
      throw py::value_error(where() +
                            " is a memoryview of something else than "
                            "contiguous bytes: write it with .tobytes()");
    }
  }
  buffers_.push_back(std::make_unique<BufferView>(string));
  return buffers_.back()->bytes();
}

void Row::add_list(py::handle list) {
  const char* kNames[] = {"", "bytes", "float", "int"};
  const py::scoped_critical_section guard(list);
  FeatureKind kind = FeatureKind::kNone;
  std::size_t count = 0;
  // The size is asked for each time: what add_item() calls may change the list.
  for (; count < static_cast<std::size_t>(PySequence_Fast_GET_SIZE(list.ptr()));
       ++count) {
    const py::handle item =
        PySequence_Fast_GET_ITEM(list.ptr(), static_cast<Py_ssize_t>(count));
    owners_.push_back(py::reinterpret_borrow<py::object>(item));
    const FeatureKind item_kind = add_item(item);
    if (item_kind == FeatureKind::kNone) {
      throw py::type_error(where() + ": a value of type " + type_name(item) +
                           " cannot be written inside of a list");
    }
    if (count == 0) kind = item_kind;
    if (item_kind != kind) {
      throw py::value_error(where() + " mixes " +
                            kNames[static_cast<std::size_t>(kind)] + " and " +
                            kNames[static_cast<std::size_t>(item_kind)] +
                            " in one list: make all values the same");
    }
  }
  set(kind, count);
}

// fastrec.BytesArray, recognised by what it has.
void Row::add_bytes_array(py::handle value) {
  const py::object data = value.attr("data");
  const py::object offsets = value.attr("offsets");
  const bool fits = py::isinstance<py::array_t<std::uint8_t>>(data) &&
                    py::isinstance<py::array>(offsets) &&
                    py::reinterpret_borrow<py::array>(offsets).dtype().kind() == 'i';
  if (!fits) {
    throw py::type_error(where() + ": a value of type " + type_name(value) +
                         " needs uint8 data and int64 offsets");
  }
  const auto bytes = py::reinterpret_borrow<py::array_t<std::uint8_t>>(data);
  const auto bounds = py::array_t<std::int64_t>::ensure(offsets);
  const py::object shape = py::getattr(value, "shape", py::none());
  if (!shape.is_none() && py::len(shape) != 1) {
    throw py::value_error(where() +
                          " is a BytesArray of more than one dimension, and "
                          "a feature is a flat list: flatten it");
  }
  if (bytes.ndim() != 1 || bounds.ndim() != 1 || bounds.size() == 0 ||
      (bytes.size() > 1 && bytes.strides(0) != 1)) {
    throw py::value_error(where() +
                          ": data and offsets must be flat arrays, data "
                          "contiguous, offsets one longer than the list");
  }
  const auto end = static_cast<std::int64_t>(bytes.size());
  std::int64_t begin = bounds.at(0);
  for (py::ssize_t i = 1; i < bounds.size(); ++i) {
    const std::int64_t next = bounds.at(i);
    if (begin < 0 || next < begin || next > end) {
      throw py::value_error(where() +
                            ": offsets must ascend from 0 or more to at most "
                            "the size of data");
    }
    strings_.emplace_back(bytes.data() + begin, static_cast<std::size_t>(next - begin));
    begin = next;
  }
  set(FeatureKind::kBytes, static_cast<std::size_t>(bounds.size() - 1));
  owners_.push_back(data);
}

// Appends `convert(value)` for each value of a flat array, which may have any stride.
template <typename Source, typename Target, typename Convert>
void append_converted(const py::array& array, const Convert& convert,
                      std::vector<Target>* values) {
  const auto count = static_cast<std::size_t>(array.size());
  const auto* source = static_cast<const char*>(array.data());
  const py::ssize_t stride = array.ndim() == 0 ? 0 : array.strides(0);
  const std::size_t begin = values->size();
  values->resize(begin + count);
  Target* target = values->data() + begin;
  for (std::size_t i = 0; i < count; ++i, source += stride) {
    Source value;
    std::memcpy(&value, source, sizeof value);
    target[i] = convert(value);
  }
}

template <typename Source>
void Row::append_ints(const py::array& array) {
  bool fits = true;
  const auto convert = [&fits](Source value) {
    fits &= std::in_range<std::int64_t>(value);
    return static_cast<std::int64_t>(value);
  };
  append_converted<Source>(array, convert, &ints_);
  if (!fits) {
    throw py::value_error(where() +
                          " has a uint64 of 2**63 or more, which int64 cannot "
                          "hold: write its bits with .view(\"int64\")");
  }
}

// Appends the integers of an array, whose type is the one of that size.
template <typename... Sources>
void Row::append_ints_of(const py::array& array) {
  const auto append = [&]<typename Source>(Source) {
    if (array.itemsize() == sizeof(Source)) append_ints<Source>(array);
  };
  (append(Sources{}), ...);
}

template <typename Source>
void Row::append_floats(const py::array& array) {
  const auto convert = [this](Source value) { return narrow(value); };
  append_converted<Source>(array, convert, &floats_);
}

float Row::narrow(double value) {
  const float result = static_cast<float>(value);
  overflowed_ |= std::isinf(result) && !std::isinf(value);
  return result;
}

// As NumPy does when it casts.
void Row::warn_of_overflow() {
  const std::string text = where() + " has a float outside of float32, written as inf";
  py::module_::import("fastrec.caller_warnings")
      .attr("warn_caller")(text, py::handle(PyExc_RuntimeWarning));
}

// Adds the values of an array of at most one dimension and returns their kind.
FeatureKind Row::add_number_array(const py::array& array) {
  const py::dtype dtype = array.dtype();
  const char kind = dtype.kind();
  const auto size = dtype.itemsize();
  if (dtype.byteorder() == '>') {
    return add_number_array(array.attr("astype")(dtype.attr("newbyteorder")("=")));
  }
  if (kind == 'i') {
    append_ints_of<std::int8_t, std::int16_t, std::int32_t, std::int64_t>(array);
    return FeatureKind::kInt64;
  }
  if (kind == 'u' || kind == 'b') {
    append_ints_of<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>(array);
    return FeatureKind::kInt64;
  }
  const bool is_bfloat16 = kind == 'V' && std::string(py::str(dtype)) == "bfloat16";
  if ((kind == 'f' && size <= 8) || is_bfloat16) {
    if (size == 2) {
      append_floats<float>(array.attr("astype")("float32"));
    } else {
      size == 4 ? append_floats<float>(array) : append_floats<double>(array);
    }
    return FeatureKind::kFloat;
  }
  if (kind == 'S') {
    throw py::type_error(
        where() + ": cannot write dtype " + std::string(py::str(dtype)) +
        ": NumPy strips trailing NUL bytes from it; pass a list of "
        "bytes or an object array (.tolist(), if no value ends in NUL)");
  }
  throw py::type_error(where() + ": cannot write dtype " + std::string(py::str(dtype)) +
                       "; convert it with .astype(\"int64\") or .astype(\"float32\"), "
                       "or text with .tolist()");
}

}  // namespace fastrec
