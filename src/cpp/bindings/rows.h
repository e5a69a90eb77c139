// Rows: one row of a batch -> Python values that own their memory.
//
// A value is a NumPy scalar, an ndarray, bytes or a BytesArray; a row is a dict of
// them by column name.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fastrec {

namespace py = pybind11;

// The Python classes of columns and rows, and the names of their slots.
struct ArrayTypes {
  static const ArrayTypes& get();

  py::object bytes_array, ragged_array, row;
  py::object value_of;  // fastrec.arrays.batch.value_of
  py::object data, offsets, shape, values, row_splits;
};

// Creates an object of a Python class with slots, without running Python code.
template <std::size_t n>
py::object new_object(const py::handle& cls,
                      const std::array<std::pair<py::handle, py::handle>, n>& slots) {
  const py::tuple none;
  auto object = py::reinterpret_steal<py::object>(PyBaseObject_Type.tp_new(
      reinterpret_cast<PyTypeObject*>(cls.ptr()), none.ptr(), nullptr));
  if (!object) throw py::error_already_set();
  for (const auto& [name, value] : slots) {
    if (PyObject_SetAttr(object.ptr(), name.ptr(), value.ptr()) != 0) {
      throw py::error_already_set();
    }
  }
  return object;
}

// A scalar if `shape` is empty, otherwise a new array, of the contiguous values at
// `data`.
py::object new_numbers(const py::dtype& dtype, std::span<const py::ssize_t> shape,
                       const std::uint8_t* data);

// A new 1-D array of `n` uninitialized values, and its memory.
py::object new_vector(const py::dtype& dtype, std::size_t n, std::uint8_t** memory);

// bytes if `shape` is empty, otherwise a new BytesArray. String i begins at
// data[offsets[i]] and ends at data[offsets[i + 1]].
py::object new_strings(std::span<const py::ssize_t> shape, const std::uint8_t* data,
                       const std::int64_t* offsets);

// A new row with the keys of `names`, a dict: its values are placeholders.
py::object new_row(const py::dict& names);
void set_value(const py::object& row, const py::object& name, const py::object& value);

// A batch of Python arrays, of which rows are copied.
class BatchRows {
 public:
  explicit BatchRows(const py::dict& batch);

  // A dict of the values of row `i` by column name.
  py::object row(py::ssize_t i) const;

 private:
  // A column whose memory has a known layout; any other one is indexed in Python.
  struct Column {
    enum class Kind : std::uint8_t { kNumbers, kStrings, kOther };

    py::object name, array;
    Kind kind = Kind::kOther;
    py::ssize_t n_rows = 0, n_items = 0;       // items: rows of `values`, if ragged
    const std::int64_t* row_splits = nullptr;  // if ragged
    std::vector<py::ssize_t> item_shape;
    py::ssize_t item_size = 1;  // in values
    const std::uint8_t* data = nullptr;
    py::dtype dtype = py::dtype::of<std::uint8_t>();
    const std::int64_t* offsets = nullptr;  // of strings
    py::ssize_t n_bytes = 0;                // of strings
    std::vector<py::object> owners = {};
  };

  static bool view(const py::handle& array, Column* column);
  static py::object value(const Column& column, py::ssize_t i);

  py::dict names_;
  std::vector<Column> columns_;
};

// Objects that one thread uses at a time and that are reused.
template <typename T>
class IdleList {
 public:
  // An object that decoded a larger record is not kept: its buffers are as large.
  static constexpr std::uint64_t kRecordBytesMax = std::uint64_t{4} << 20;

  // Returns an idle object, or null.
  std::unique_ptr<T> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return nullptr;
    std::unique_ptr<T> object = std::move(idle_.back());
    idle_.pop_back();
    return object;
  }

  void put(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(object));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace fastrec
