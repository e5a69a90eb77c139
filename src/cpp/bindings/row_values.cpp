#include "bindings/row_values.h"

#include <pybind11/critical_section.h>

#include <cmath>
#include <cstring>
#include <utility>

namespace fastrec {
namespace {

// numpy.generic, the class of NumPy's scalars.
bool is_numpy_scalar(py::handle value) {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<py::object> generic;
  generic.call_once_and_store_result(
      [] { return py::module_::import("numpy").attr("generic"); });
  return py::isinstance(value, generic.get_stored());
}

}  // namespace

std::string FeatureLabel::text() const {
  return (is_list ? "feature list " : "feature ") + std::string(py::str(py::repr(key)));
}

void RowValues::clear() noexcept {
  strings_.clear();
  floats_.clear();
  ints_.clear();
  owners_.clear();
  buffers_.clear();
}

RowValues::Added RowValues::add(py::handle value) {
  overflowed_ = false;
  const Added added = add_any(value);
  if (overflowed_) warn_of_overflow();
  return added;
}

RowValues::Added RowValues::add_any(py::handle value) {
  if (py::isinstance<py::array>(value)) {
    const auto array = py::reinterpret_borrow<py::array>(value);
    const auto count = static_cast<std::size_t>(array.size());
    if (array.ndim() > 1) {
      throw py::value_error(label_->text() + " is an array of " +
                            std::to_string(array.ndim()) +
                            " dimensions; write its bytes with .tobytes(), or pass its "
                            "spec to Writer(features=...), for example " +
                            "fr.Raw(" + std::string(py::repr(array.attr("shape"))) +
                            ", '" + std::string(py::str(array.dtype())) + "')");
    }
    return {add_number_array(array), count};
  }
  if (const FeatureKind kind = add_item(value); kind != FeatureKind::kNone) {
    return {kind, 1};
  }
  if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) return add_list(value);
  if (py::hasattr(value, "data") && py::hasattr(value, "offsets")) {
    return add_bytes_array(value);
  }
  if (value.is_none()) {
    throw py::type_error(label_->text() +
                         ": cannot write None; leave it out of the row");
  }
  throw py::type_error(label_->text() + ": cannot write a value of type " +
                       type_name(value) +
                       "; write numbers, strings, lists of them or NumPy arrays");
}

// Adds a single value. Returns kNone and adds nothing if it is not one.
FeatureKind RowValues::add_item(py::handle item) {
  PyObject* object = item.ptr();
  if (PyLong_Check(object)) {  // bool and IntEnum are ints, too
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0) {
      throw py::value_error(label_->text() +
                            ": integers must be in the range of int64; write the bits "
                            "of a uint64 with np.uint64(value).view(\"int64\")");
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

Bytes RowValues::view_of_string(py::handle string) {
  PyObject* object = string.ptr();
  if (PyBytes_Check(object)) return bytes_of(string);
  if (PyUnicode_Check(object)) {
    Py_ssize_t size;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) {
      PyErr_Clear();
      throw py::value_error(label_->text() +
                            " has a str that cannot be encoded as UTF-8; encode it to "
                            "bytes, for example with "
                            ".encode(errors=\"surrogateescape\")");
    }
    return as_bytes({text, static_cast<std::size_t>(size)});
  }
  if (PyMemoryView_Check(object)) {
    const Py_buffer* view = PyMemoryView_GET_BUFFER(object);
    if (view->itemsize != 1 || !PyBuffer_IsContiguous(view, 'C')) {
      throw py::value_error(label_->text() +
                            " is a memoryview that is not contiguous bytes; write it "
                            "with .tobytes()");
    }
  }
  buffers_.push_back(std::make_unique<BufferView>(string));
  return buffers_.back()->bytes();
}

RowValues::Added RowValues::add_list(py::handle list) {
  const char* kNames[] = {"", "string", "float", "int"};
  const py::scoped_critical_section guard(list);
  FeatureKind kind = FeatureKind::kNone;
  std::size_t count = 0;
  // Reads the size each time, because add_item() may run code that changes the list.
  for (; count < static_cast<std::size_t>(PySequence_Fast_GET_SIZE(list.ptr()));
       ++count) {
    const py::handle item =
        PySequence_Fast_GET_ITEM(list.ptr(), static_cast<Py_ssize_t>(count));
    keep_alive(item);
    const FeatureKind item_kind = add_item(item);
    if (item_kind == FeatureKind::kNone) {
      if (PyList_Check(item.ptr()) || PyTuple_Check(item.ptr())) {
        throw py::value_error(label_->text() +
                              ": cannot write lists of lists; write their values and "
                              "their lengths as two "
                              "features, which fr.Ragged reads as one column");
      }
      throw py::type_error(label_->text() + ": cannot write a value of type " +
                           type_name(item) + " in a list; write numbers or strings");
    }
    if (count == 0) kind = item_kind;
    if (item_kind != kind) {
      throw py::value_error(label_->text() + ": cannot mix " +
                            kNames[static_cast<std::size_t>(kind)] + " and " +
                            kNames[static_cast<std::size_t>(item_kind)] +
                            "; make all values the same");
    }
  }
  return {kind, count};
}

// Adds a fastrec.BytesArray, by its attributes.
RowValues::Added RowValues::add_bytes_array(py::handle value) {
  const py::object data = value.attr("data");
  const py::object offsets = value.attr("offsets");
  const bool fits = py::isinstance<py::array_t<std::uint8_t>>(data) &&
                    py::isinstance<py::array>(offsets) &&
                    py::reinterpret_borrow<py::array>(offsets).dtype().kind() == 'i';
  if (!fits) {
    throw py::type_error(label_->text() + ": a value of type " + type_name(value) +
                         " must have uint8 data and integer offsets");
  }
  const auto bytes = py::reinterpret_borrow<py::array_t<std::uint8_t>>(data);
  const auto bounds = py::array_t<std::int64_t>::ensure(offsets);
  const py::object shape = py::getattr(value, "shape", py::none());
  if (!shape.is_none() && py::len(shape) != 1) {
    throw py::value_error(label_->text() +
                          " is a BytesArray of more than one dimension; flatten it");
  }
  if (bytes.ndim() != 1 || bounds.ndim() != 1 || bounds.size() == 0 ||
      (bytes.size() > 1 && bytes.strides(0) != 1)) {
    throw py::value_error(
        label_->text() +
        ": data and offsets must be one-dimensional arrays; data must "
        "be contiguous, and offsets must not be empty");
  }
  const auto end = static_cast<std::int64_t>(bytes.size());
  std::int64_t begin = bounds.at(0);
  for (py::ssize_t i = 1; i < bounds.size(); ++i) {
    const std::int64_t next = bounds.at(i);
    if (begin < 0 || next < begin || next > end) {
      throw py::value_error(label_->text() +
                            ": offsets must ascend from 0 or more to at most "
                            "the size of data");
    }
    strings_.emplace_back(bytes.data() + begin, static_cast<std::size_t>(next - begin));
    begin = next;
  }
  owners_.push_back(data);
  return {FeatureKind::kBytes, static_cast<std::size_t>(bounds.size() - 1)};
}

// Appends `convert(value)` for each value of an array of at most one dimension.
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
void RowValues::append_ints(const py::array& array) {
  bool fits = true;
  const auto convert = [&fits](Source value) {
    fits &= std::in_range<std::int64_t>(value);
    return static_cast<std::int64_t>(value);
  };
  append_converted<Source>(array, convert, &ints_);
  if (!fits) {
    throw py::value_error(label_->text() +
                          ": integers must be in the range of int64; write the bits "
                          "of a uint64 with .view(\"int64\")");
  }
}

// Appends the integers of an array with the type in `Sources` that has its item size.
template <typename... Sources>
void RowValues::append_ints_of(const py::array& array) {
  const auto append = [&]<typename Source>(Source) {
    if (array.itemsize() == sizeof(Source)) append_ints<Source>(array);
  };
  (append(Sources{}), ...);
}

template <typename Source>
void RowValues::append_floats(const py::array& array) {
  const auto convert = [this](Source value) { return narrow(value); };
  append_converted<Source>(array, convert, &floats_);
}

float RowValues::narrow(double value) {
  const float result = static_cast<float>(value);
  overflowed_ |= std::isinf(result) && !std::isinf(value);
  return result;
}

// NumPy warns in the same way when it casts.
void RowValues::warn_of_overflow() {
  const std::string text =
      label_->text() + " has a float outside of float32, written as inf";
  py::module_::import("fastrec.caller_warnings")
      .attr("warn_caller")(text, py::handle(PyExc_RuntimeWarning));
}

// Adds the values of an array of at most one dimension and returns their kind.
FeatureKind RowValues::add_number_array(const py::array& array) {
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
        label_->text() + ": cannot write dtype " + std::string(py::str(dtype)) +
        ": NumPy strips trailing NUL bytes from it; pass a list of "
        "bytes or an object array (.tolist(), if no value ends in NUL)");
  }
  throw py::type_error(label_->text() + ": cannot write dtype " +
                       std::string(py::str(dtype)) +
                       "; convert it with .astype(\"int64\") or .astype(\"float32\"), "
                       "or text with .tolist()");
}

}  // namespace fastrec
