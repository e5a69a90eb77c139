#include "bindings/rows.h"

#include <pybind11/gil_safe_call_once.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "bindings/bindings.h"

namespace fastrec {
namespace {

using NumPy = py::detail::npy_api;

// Rows of batches have at most this many axes, the limit of NumPy 2.
constexpr std::size_t kAxesMax = 64;

// The first number of NumPy's new-style and user-defined dtypes.
constexpr int kLegacyTypes = 24;

py::object interned(const char* name) {
  return py::reinterpret_steal<py::object>(PyUnicode_InternFromString(name));
}

py::object new_array(const py::dtype& dtype, std::span<const py::ssize_t> shape) {
  const NumPy& numpy = NumPy::get();
  auto array = py::reinterpret_steal<py::object>(numpy.PyArray_NewFromDescr_(
      numpy.PyArray_Type_, dtype.inc_ref().ptr(), static_cast<int>(shape.size()),
      shape.data(), nullptr, nullptr, 0, nullptr));
  if (!array) throw py::error_already_set();
  return array;
}

std::uint8_t* memory_of(const py::object& array) {
  return static_cast<std::uint8_t*>(
      static_cast<void*>(py::detail::array_proxy(array.ptr())->data));
}

py::ssize_t count(std::span<const py::ssize_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), py::ssize_t{1},
                         std::multiplies<>());
}

// Whether an array is exactly an ndarray of contiguous native values that are not
// Python objects.
bool is_plain(const py::handle& array) {
  const NumPy& numpy = NumPy::get();
  if (Py_TYPE(array.ptr()) != numpy.PyArray_Type_) return false;
  const auto view = py::reinterpret_borrow<py::array>(array);
  constexpr int kFlags = NumPy::NPY_ARRAY_C_CONTIGUOUS_ | NumPy::NPY_ARRAY_ALIGNED_;
  const py::dtype dtype = view.dtype();
  const char order = dtype.byteorder();
  const bool is_native = order != '>' && order != '<';
  return (view.flags() & kFlags) == kFlags && is_native && dtype.num() < kLegacyTypes &&
         dtype.kind() != 'O' && !dtype.has_fields() && view.ndim() > 0;
}

// The memory of a 1-D array of T; null if it is another array.
template <typename T>
const T* vector_of(const py::handle& array, py::ssize_t* size) {
  if (!is_plain(array)) return nullptr;
  const auto view = py::reinterpret_borrow<py::array>(array);
  if (view.ndim() != 1 || view.dtype().num() != py::dtype::of<T>().num()) {
    return nullptr;
  }
  *size = view.size();
  return static_cast<const T*>(view.data());
}

py::object attribute(const py::handle& object, const py::object& name) {
  auto value =
      py::reinterpret_steal<py::object>(PyObject_GetAttr(object.ptr(), name.ptr()));
  if (!value) throw py::error_already_set();
  return value;
}

}  // namespace

const ArrayTypes& ArrayTypes::get() {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<ArrayTypes> storage;
  return storage
      .call_once_and_store_result([] {
        const py::module_ arrays = py::module_::import("fastrec.arrays.batch");
        return ArrayTypes{
            .bytes_array = arrays.attr("BytesArray"),
            .ragged_array = arrays.attr("RaggedArray"),
            .row = py::module_::import("fastrec.display").attr("ShortRow"),
            .value_of = arrays.attr("value_of"),
            .data = interned("data"),
            .offsets = interned("offsets"),
            .shape = interned("shape"),
            .values = interned("values"),
            .row_splits = interned("row_splits"),
        };
      })
      .get_stored();
}

py::object new_numbers(const py::dtype& dtype, std::span<const py::ssize_t> shape,
                       const std::uint8_t* data) {
  if (shape.empty() && dtype.num() < kLegacyTypes) {
    // NumPy only reads the value.
    auto scalar = py::reinterpret_steal<py::object>(NumPy::get().PyArray_Scalar_(
        const_cast<std::uint8_t*>(data), dtype.ptr(), nullptr));
    if (!scalar) throw py::error_already_set();
    return scalar;
  }
  const py::object array = new_array(dtype, shape);
  std::copy_n(data, count(shape) * dtype.itemsize(), memory_of(array));
  return shape.empty() ? py::object(array[py::tuple()]) : array;
}

py::object new_vector(const py::dtype& dtype, std::size_t n, std::uint8_t** memory) {
  const py::ssize_t shape[] = {static_cast<py::ssize_t>(n)};
  py::object array = new_array(dtype, shape);
  *memory = memory_of(array);
  return array;
}

py::object new_strings(std::span<const py::ssize_t> shape, const std::uint8_t* data,
                       const std::int64_t* offsets) {
  if (shape.empty()) {
    auto string = py::reinterpret_steal<py::object>(
        PyBytes_FromStringAndSize(reinterpret_cast<const char*>(data) + offsets[0],
                                  static_cast<py::ssize_t>(offsets[1] - offsets[0])));
    if (!string) throw py::error_already_set();
    return string;
  }
  const ArrayTypes& types = ArrayTypes::get();
  const py::ssize_t n = count(shape);
  const std::int64_t begin = offsets[0], n_bytes = offsets[n] - begin;
  std::uint8_t *target, *ends_target;
  const py::object bytes = new_vector(py::dtype::of<std::uint8_t>(),
                                      static_cast<std::size_t>(n_bytes), &target);
  std::copy_n(data + begin, n_bytes, target);
  const py::object ends = new_vector(py::dtype::of<std::int64_t>(),
                                     static_cast<std::size_t>(n) + 1, &ends_target);
  std::transform(offsets, offsets + n + 1, reinterpret_cast<std::int64_t*>(ends_target),
                 [begin](std::int64_t offset) { return offset - begin; });
  py::tuple sizes(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) sizes[i] = shape[i];
  return new_object<3>(
      types.bytes_array,
      {{{types.data, bytes}, {types.offsets, ends}, {types.shape, sizes}}});
}

py::object new_row(const py::dict& names) {
  const py::object& cls = ArrayTypes::get().row;
  const py::tuple none;
  auto row = py::reinterpret_steal<py::object>(PyDict_Type.tp_new(
      reinterpret_cast<PyTypeObject*>(cls.ptr()), none.ptr(), nullptr));
  // The copy has room for all names.
  if (!row || PyDict_Merge(row.ptr(), names.ptr(), 1) != 0) {
    throw py::error_already_set();
  }
  return row;
}

void set_value(const py::object& row, const py::object& name, const py::object& value) {
  if (PyDict_SetItem(row.ptr(), name.ptr(), value.ptr()) != 0) {
    throw py::error_already_set();
  }
}

BatchRows::BatchRows(const py::dict& batch) {
  columns_.reserve(batch.size());
  for (const auto& [name, array] : batch) {
    Column column;
    column.name = py::reinterpret_borrow<py::object>(name);
    column.array = py::reinterpret_borrow<py::object>(array);
    const ArrayTypes& types = ArrayTypes::get();
    py::object items = column.array;
    if (Py_TYPE(array.ptr()) ==
        reinterpret_cast<PyTypeObject*>(types.ragged_array.ptr())) {
      const py::object splits = attribute(array, types.row_splits);
      items = attribute(array, types.values);
      column.row_splits = vector_of<std::int64_t>(splits, &column.n_rows);
      --column.n_rows;
      column.owners.push_back(splits);
      if (column.row_splits == nullptr) items = py::none();
    }
    if (!view(items, &column)) column.kind = Column::Kind::kOther;
    if (column.row_splits == nullptr) column.n_rows = column.n_items;
    column.owners.push_back(std::move(items));
    names_[name] = py::none();
    columns_.push_back(std::move(column));
  }
}

// Finds the memory of the items of a column; false if its layout is unknown.
bool BatchRows::view(const py::handle& items, Column* column) {
  const ArrayTypes& types = ArrayTypes::get();
  if (is_plain(items)) {
    const auto array = py::reinterpret_borrow<py::array>(items);
    column->kind = Column::Kind::kNumbers;
    column->dtype = array.dtype();
    column->data = static_cast<const std::uint8_t*>(array.data());
    column->n_items = array.shape(0);
    column->item_shape.assign(array.shape() + 1, array.shape() + array.ndim());
  } else if (Py_TYPE(items.ptr()) ==
             reinterpret_cast<PyTypeObject*>(types.bytes_array.ptr())) {
    const py::object data = attribute(items, types.data);
    const py::object offsets = attribute(items, types.offsets);
    py::ssize_t n_offsets = 0;
    column->kind = Column::Kind::kStrings;
    column->data = vector_of<std::uint8_t>(data, &column->n_bytes);
    column->offsets = vector_of<std::int64_t>(offsets, &n_offsets);
    if (column->data == nullptr || column->offsets == nullptr) return false;
    const auto shape = attribute(items, types.shape).cast<py::tuple>();
    for (const py::handle size : shape) {
      column->item_shape.push_back(size.cast<py::ssize_t>());
    }
    if (count(column->item_shape) != n_offsets - 1 || column->item_shape.empty()) {
      return false;
    }
    column->n_items = column->item_shape.front();
    column->item_shape.erase(column->item_shape.begin());
    column->owners.push_back(data);
    column->owners.push_back(offsets);
  } else {
    return false;
  }
  column->item_size = count(column->item_shape);
  return true;
}

py::object BatchRows::value(const Column& column, py::ssize_t i) {
  const auto other = [&] {
    return ArrayTypes::get().value_of(column.array, i);  // checks all bounds
  };
  if (column.kind == Column::Kind::kOther || i < 0 || i >= column.n_rows) {
    return other();
  }
  std::array<py::ssize_t, kAxesMax> axes;
  std::size_t n_axes = 0;
  py::ssize_t first = i, n = 1;
  if (column.row_splits != nullptr) {
    first = static_cast<py::ssize_t>(column.row_splits[i]);
    const auto end = static_cast<py::ssize_t>(column.row_splits[i + 1]);
    if (first < 0 || end < first || end > column.n_items) return other();
    n = end - first;
    axes[n_axes++] = n;
  }
  if (column.item_shape.size() + n_axes > axes.size()) return other();
  for (const py::ssize_t size : column.item_shape) axes[n_axes++] = size;
  const std::span<const py::ssize_t> shape(axes.data(), n_axes);
  const py::ssize_t begin = first * column.item_size;
  if (column.kind == Column::Kind::kNumbers) {
    return new_numbers(column.dtype, shape,
                       column.data + begin * column.dtype.itemsize());
  }
  const std::int64_t* const offsets = column.offsets + begin;
  const py::ssize_t n_strings = n * column.item_size;
  if (offsets[0] < 0 || offsets[n_strings] > column.n_bytes ||
      !std::is_sorted(offsets, offsets + n_strings + 1)) {
    return other();
  }
  return new_strings(shape, column.data, offsets);
}

py::object BatchRows::row(py::ssize_t i) const {
  py::object result = new_row(names_);
  for (const Column& column : columns_)
    set_value(result, column.name, value(column, i));
  return result;
}

void register_rows(py::module_& m) {
  py::class_<BatchRows>(m, "BatchRows")
      .def(py::init<const py::dict&>(), py::arg("batch"))
      .def("row", &BatchRows::row, py::arg("i"));
}

}  // namespace fastrec
