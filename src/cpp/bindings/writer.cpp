// Writer: Python values -> rows of features -> records of a file.
//
// What a value becomes depends on its own type alone, as in TensorFlow's guide to
// tf.train.Example: bool, int and integer arrays become int64, floats float32, str and
// bytes byte strings.

#include <pybind11/critical_section.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "example/encode.h"
#include "writer/file_writer.h"

namespace fastrec {
namespace {

// Contiguous memory of a Python object, which cannot change its size meanwhile.
class BufferView {
 public:
  explicit BufferView(py::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) {
      throw py::error_already_set();
    }
  }
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;

  Bytes bytes() const noexcept {
    return {static_cast<const std::uint8_t*>(view_.buf),
            static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

Bytes bytes_of(py::handle bytes) {
  return as_bytes({PyBytes_AS_STRING(bytes.ptr()),
                   static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))});
}

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

// The features of one row, taken out of Python objects.
//
// Numbers are copied. Strings are views of objects that the row keeps alive, so it can
// be encoded without the GIL, whatever other threads do to the mapping meanwhile.
class Row {
 public:
  void fill(py::handle mapping);
  std::span<const FeatureValues> features() const noexcept { return features_; }
  ExampleEncoder& encoder() noexcept { return encoder_; }

  // Forgets the row but keeps the memory. Needs the GIL.
  void clear() noexcept;

 private:
  void add_feature(py::handle key, py::handle value);
  void add_value(py::handle value);
  FeatureKind add_item(py::handle item);
  FeatureKind add_number_array(const py::array& array);
  void add_list(py::handle list);
  void add_bytes_array(py::handle value);
  Bytes view_of_string(py::handle string);

  template <typename Source>
  void append_ints(const py::array& array);
  template <typename Source>
  void append_floats(const py::array& array);
  // A float that went through double would lose the bits of a signalling NaN.
  static float narrow(float value) noexcept { return value; }
  float narrow(double value);
  void warn_of_overflow();

  void set(FeatureKind kind, std::size_t count);
  void refuse_equal_keys() const;
  std::string where() const;  // "feature 'label'"

  std::vector<FeatureValues> features_;
  std::vector<std::size_t> counts_;  // values of each feature
  std::vector<Bytes> strings_;
  std::vector<float> floats_;
  std::vector<std::int64_t> ints_;
  std::vector<py::object> owners_;
  std::vector<std::unique_ptr<BufferView>> buffers_;
  py::handle key_;  // of the feature at hand
  bool overflowed_ = false;
  ExampleEncoder encoder_;
};

void Row::clear() noexcept {
  features_.clear();
  counts_.clear();
  strings_.clear();
  floats_.clear();
  ints_.clear();
  owners_.clear();
  buffers_.clear();
}

std::string Row::where() const {
  return "feature " + std::string(py::str(py::repr(key_)));
}

void Row::fill(py::handle mapping) {
  py::dict row;
  if (PyDict_Check(mapping.ptr())) {
    row = py::reinterpret_borrow<py::dict>(mapping);
  } else if (py::hasattr(mapping, "keys")) {
    if (PyDict_Update(row.ptr(), mapping.ptr()) != 0) throw py::error_already_set();
  } else {
    throw py::type_error("a row is a mapping of feature names to values, not " +
                         type_name(mapping));
  }

  bool has_str = false, has_bytes = false;
  {
    const py::scoped_critical_section guard(row);
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(row.ptr(), &position, &key, &value)) {
      has_str |= PyUnicode_Check(key) != 0;
      has_bytes |= PyBytes_Check(key) != 0;
      add_feature(key, value);
    }
  }
  if (has_str && has_bytes) refuse_equal_keys();

  // Only now do the lists stay where they are.
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

// A dict tells "a" from b"a"; an Example does not.
void Row::refuse_equal_keys() const {
  for (std::size_t i = 0; i < features_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (as_text(features_[i].key) == as_text(features_[j].key)) {
        throw py::value_error("a row has the feature '" +
                              std::string(as_text(features_[i].key)) +
                              "' twice, as str and as bytes");
      }
    }
  }
}

void Row::add_feature(py::handle key, py::handle value) {
  // Converting a value can run Python code, which can change the mapping.
  owners_.push_back(py::reinterpret_borrow<py::object>(key));
  owners_.push_back(py::reinterpret_borrow<py::object>(value));
  key_ = key;
  if (!PyUnicode_Check(key.ptr()) && !PyBytes_Check(key.ptr())) {
    throw py::type_error("a feature's name is str or bytes, not " + type_name(key));
  }
  features_.emplace_back().key = view_of_string(key);
  counts_.push_back(0);
  overflowed_ = false;
  add_value(value);
  if (overflowed_) warn_of_overflow();
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
                            " dimensions: write its bytes with .tobytes(), or its "
                            "values as a list with .ravel()");
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
  if (count == 0) {
    throw py::value_error(where() +
                          " is an empty list, whose kind is unknown: write "
                          "np.array([], \"int64\"), np.array([], \"float32\") or "
                          "fastrec.BytesArray.from_list([])");
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
  constexpr py::ssize_t kCaller = 2;  // of the Python function that called us
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), kCaller) != 0) {
    throw py::error_already_set();
  }
}

// Adds the values of an array of at most one dimension and returns their kind.
FeatureKind Row::add_number_array(const py::array& array) {
  const py::dtype dtype = array.dtype();
  const char kind = dtype.kind();
  const auto size = dtype.itemsize();
  constexpr char kForeign = std::endian::native == std::endian::little ? '>' : '<';
  if (dtype.byteorder() == kForeign) {
    return add_number_array(array.attr("astype")(dtype.attr("newbyteorder")("=")));
  }
  if (kind == 'i' || kind == 'b' || kind == 'u') {
    const bool is_signed = kind == 'i';
    switch (size) {
      case 1:
        is_signed ? append_ints<std::int8_t>(array) : append_ints<std::uint8_t>(array);
        break;
      case 2:
        is_signed ? append_ints<std::int16_t>(array)
                  : append_ints<std::uint16_t>(array);
        break;
      case 4:
        is_signed ? append_ints<std::int32_t>(array)
                  : append_ints<std::uint32_t>(array);
        break;
      default:
        is_signed ? append_ints<std::int64_t>(array)
                  : append_ints<std::uint64_t>(array);
        break;
    }
    return FeatureKind::kInt64;
  }
  if (kind == 'f' && size <= 8) {
    switch (size) {
      case 2:
        append_floats<float>(array.attr("astype")("float32"));
        break;
      case 4:
        append_floats<float>(array);
        break;
      default:
        append_floats<double>(array);
        break;
    }
    return FeatureKind::kFloat;
  }
  throw py::type_error(where() + ": dtype " + std::string(py::str(dtype)) +
                       " cannot be written; convert it with .astype(\"int64\") or "
                       ".astype(\"float32\"), or strings with .tolist()");
}

// A Row that belongs to nobody else: the spare one of this thread, if no row is being
// filled on it already (a value's own Python code may write another row).
class RowLease {
 public:
  RowLease() : row_(spare() ? std::move(spare()) : std::make_unique<Row>()) {}
  ~RowLease() {
    row_->clear();
    spare() = std::move(row_);
  }
  RowLease(const RowLease&) = delete;
  RowLease& operator=(const RowLease&) = delete;

  Row* operator->() const noexcept { return row_.get(); }

 private:
  static std::unique_ptr<Row>& spare() {
    thread_local std::unique_ptr<Row> row;
    return row;
  }

  std::unique_ptr<Row> row_;
};

// A FileWriter for several threads.
//
// Nobody waits for the mutex with the GIL in hand: who has the mutex may be waiting for
// the GIL. The GIL is kept for what takes microseconds, because another thread that got
// it may keep it for milliseconds.
class SharedFileWriter {
 public:
  SharedFileWriter(std::string path, Existing existing)
      : writer_(std::move(path), existing) {}

  template <typename Store>
  void write_record(std::uint64_t length, const Store& store) {
    constexpr std::uint64_t kMostBytesWithGil = 64 << 10;
    const auto write = [&] { writer_.write_record(length, store); };
    if (std::unique_lock lock(mutex_, std::try_to_lock);
        lock && length <= kMostBytesWithGil && writer_.fits(length)) {
      return write();
    }
    without_gil(write);
  }

  template <typename Query>
  auto ask(const Query& query) {
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock) return query(writer_);
    return without_gil([&] { return query(writer_); });
  }

  void close() {
    without_gil([&] { writer_.close(); });
  }
  void abandon() {
    without_gil([&] { writer_.abandon(); });
  }

 private:
  template <typename Action>
  std::invoke_result_t<Action> without_gil(const Action& action) {
    const py::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    return action();
  }

  std::mutex mutex_;
  FileWriter writer_;
};

std::unique_ptr<SharedFileWriter> open_file(py::handle path, bool overwrite) {
  PyObject* encoded = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), static_cast<void*>(&encoded)) == 0) {
    throw py::error_already_set();
  }
  std::string text(as_text(bytes_of(py::reinterpret_steal<py::bytes>(encoded))));
  const py::gil_scoped_release released;
  return std::make_unique<SharedFileWriter>(
      std::move(text), overwrite ? Existing::kReplace : Existing::kRefuse);
}

void write_example(SharedFileWriter& writer, py::handle features) {
  const RowLease row;
  row->fill(features);
  const std::uint64_t size = row->encoder().measure(row->features());
  writer.write_record(size, [&row](std::uint8_t* payload) {
    row->encoder().store(row->features(), payload);
  });
}

void write_record(SharedFileWriter& writer, py::handle record) {
  const BufferView view(record);
  const Bytes bytes = view.bytes();
  writer.write_record(bytes.size(), [bytes](std::uint8_t* payload) {
    if (!bytes.empty()) std::memcpy(payload, bytes.data(), bytes.size());
  });
}

py::bytes encode_example(py::handle features) {
  const RowLease row;
  row->fill(features);
  const std::uint64_t size = row->encoder().measure(row->features());
  auto result = py::reinterpret_steal<py::bytes>(
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!result) throw py::error_already_set();
  row->encoder().store(row->features(), reinterpret_cast<std::uint8_t*>(
                                            PyBytes_AS_STRING(result.ptr())));
  return result;
}

py::str path_of(SharedFileWriter& writer) {
  const std::string path = writer.ask([](const FileWriter& w) { return w.path(); });
  return py::reinterpret_steal<py::str>(PyUnicode_DecodeFSDefaultAndSize(
      path.data(), static_cast<Py_ssize_t>(path.size())));
}

}  // namespace

void register_writer(py::module_& m) {
  py::class_<SharedFileWriter>(m, "FileWriter")
      .def(py::init(&open_file), py::arg("path"), py::kw_only(), py::arg("overwrite"))
      .def("write_example", &write_example, py::arg("features"), py::pos_only())
      .def("write_record", &write_record, py::arg("record"), py::pos_only())
      .def("close", &SharedFileWriter::close)
      .def("abandon", &SharedFileWriter::abandon)
      .def_property_readonly("path", &path_of)
      .def_property_readonly(
          "closed",
          [](SharedFileWriter& writer) {
            return writer.ask([](const FileWriter& w) { return w.closed(); });
          })
      .def_property_readonly(
          "n_records",
          [](SharedFileWriter& writer) {
            return writer.ask([](const FileWriter& w) { return w.n_records(); });
          })
      .def_property_readonly("n_bytes", [](SharedFileWriter& writer) {
        return writer.ask([](const FileWriter& w) { return w.n_bytes(); });
      });
  m.def("encode_example", &encode_example, py::arg("features"), py::pos_only());
}

}  // namespace fastrec
