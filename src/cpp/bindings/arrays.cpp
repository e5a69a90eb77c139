#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/rows.h"

namespace fastrec {
namespace {

using NumPy = py::detail::npy_api;

// An array over `data`, which `owner` keeps alive. Runs once per column and batch, so
// it avoids the vectors of pybind11's constructor.
py::object new_array(const py::dtype& dtype, std::span<const py::ssize_t> shape,
                     std::uint8_t* data, const py::handle& owner) {
  // Blocks are aligned for all types. NumPy adds F_CONTIGUOUS if it applies.
  constexpr int kFlags = NumPy::NPY_ARRAY_C_CONTIGUOUS_ | NumPy::NPY_ARRAY_ALIGNED_ |
                         NumPy::NPY_ARRAY_WRITEABLE_;
  const NumPy& numpy = NumPy::get();
  auto array = py::reinterpret_steal<py::object>(numpy.PyArray_NewFromDescr_(
      numpy.PyArray_Type_, dtype.inc_ref().ptr(), static_cast<int>(shape.size()),
      shape.data(), nullptr, data, kFlags, nullptr));
  if (!array || numpy.PyArray_SetBaseObject_(array.ptr(), owner.inc_ref().ptr()) != 0) {
    throw py::error_already_set();
  }
  return array;
}

// The number of items in each row before padding.
py::array_t<std::int64_t> lengths_of(const Column& column, std::size_t n_rows) {
  py::array_t<std::int64_t> lengths(static_cast<py::ssize_t>(n_rows));
  const auto* splits = reinterpret_cast<const std::int64_t*>(column.row_splits.data);
  std::transform(splits + 1, splits + 1 + n_rows, splits, lengths.mutable_data(),
                 std::minus<>());
  return lengths;
}

}  // namespace

py::object view_of(const Array& array, const py::dtype& dtype,
                   const std::vector<py::ssize_t>& shape, const py::handle& owner) {
  return new_array(dtype, shape, array.data, owner);
}

py::object owner_of(std::shared_ptr<Block> block) { return py::cast(std::move(block)); }

ArrayMaker::ArrayMaker(py::object compose)
    : int64_(py::dtype::of<std::int64_t>()),
      uint8_(py::dtype::of<std::uint8_t>()),
      compose_(std::move(compose)) {}

void ArrayMaker::add(const ColumnSpec& spec, py::object name, py::dtype dtype,
                     const std::vector<py::ssize_t>& shape, bool has_lengths) {
  const std::size_t column = n_columns_++;
  if (spec.slot != 0) return;
  if (shape.size() > kMaxAxes) {
    throw py::value_error("shape must have at most " + std::to_string(kMaxAxes) +
                          " axes, got " + std::to_string(shape.size()));
  }
  Target target{.column = column,
                .name = std::move(name),
                .dtype = std::move(dtype),
                .shape = {0},
                .is_ragged = spec.layout == Layout::kRagged,
                .is_padded = spec.layout == Layout::kPadded,
                .has_strings = spec.dtype == DType::kBytes,
                .has_lengths = has_lengths,
                .has_extents = spec.reach.has_value(),
                .item_values = spec.n_values};
  if (target.is_padded) target.shape.push_back(0);
  if (spec.n_slots > 1) {
    target.shape.push_back(static_cast<py::ssize_t>(spec.n_slots));
  }
  target.shape.insert(target.shape.end(), shape.begin(), shape.end());
  names_[target.name] = py::none();
  targets_.push_back(std::move(target));
}

// The shape of a column of a batch; of the values, if it is ragged.
std::span<const py::ssize_t> ArrayMaker::shape_of(const Target& target,
                                                  const Column& column,
                                                  std::size_t n_rows, Axes* axes) {
  std::copy(target.shape.begin(), target.shape.end(), axes->begin());
  (*axes)[0] = static_cast<py::ssize_t>(n_rows);
  if (target.is_padded) (*axes)[1] = static_cast<py::ssize_t>(column.width);
  if (target.is_ragged) {
    (*axes)[0] = static_cast<py::ssize_t>(
        target.item_values == 0 ? 0 : column.n_values / target.item_values);
  }
  return {axes->data(), target.shape.size()};
}

py::object ArrayMaker::array(const Target& target, const Batch& batch,
                             std::span<const py::object> owners) const {
  const ArrayTypes& types = ArrayTypes::get();
  const Column& column = batch.columns[target.column];
  const auto view = [&](const Column::Array& array, const py::dtype& dtype,
                        std::span<const py::ssize_t> shape) {
    return new_array(dtype, shape, array.data, owners[array.block]);
  };
  Axes axes;
  const std::span<const py::ssize_t> shape =
      shape_of(target, column, batch.n_rows, &axes);

  py::object values;
  if (target.has_strings) {
    const auto n_strings = static_cast<py::ssize_t>(column.n_values);
    const py::ssize_t n_offsets[] = {n_strings + 1};
    const py::ssize_t n_bytes[] = {static_cast<py::ssize_t>(
        reinterpret_cast<const std::int64_t*>(column.offsets.data)[n_strings])};
    const py::object data = view(column.values, uint8_, n_bytes);
    const py::object offsets = view(column.offsets, int64_, n_offsets);
    py::tuple sizes(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) sizes[i] = shape[i];
    values = new_object<3>(
        types.bytes_array,
        {{{types.data, data}, {types.offsets, offsets}, {types.shape, sizes}}});
  } else {
    values = view(column.values, target.dtype, shape);
  }
  if (!target.is_ragged) return values;
  const py::ssize_t n_splits[] = {static_cast<py::ssize_t>(batch.n_rows) + 1};
  const py::object row_splits = view(column.row_splits, int64_, n_splits);
  return new_object<2>(types.ragged_array,
                       {{{types.values, values}, {types.row_splits, row_splits}}});
}

py::object ArrayMaker::row(std::span<const Column> columns, Batch* batch) const {
  if (!creates_rows()) return BatchRows(arrays(batch).cast<py::dict>()).row(0);
  py::object result = new_row(names_);
  Axes axes;
  for (const Target& target : targets_) {
    const Column& column = columns[target.column];
    const auto whole = shape_of(target, column, 1, &axes);
    const auto shape = target.is_ragged ? whole : whole.subspan(1);
    set_value(
        result, target.name,
        target.has_strings
            ? new_strings(shape, column.values.data,
                          reinterpret_cast<const std::int64_t*>(column.offsets.data))
            : new_numbers(target.dtype, shape, column.values.data));
  }
  return result;
}

py::object ArrayMaker::arrays(Batch* batch) const {
  std::vector<py::object> owners;
  owners.reserve(batch->blocks.size());
  for (std::shared_ptr<Block>& block : batch->blocks) {
    owners.push_back(owner_of(std::move(block)));
  }
  batch->blocks.clear();
  if (compose_.is_none()) {
    // A copy already has room for all names.
    auto result = py::reinterpret_steal<py::dict>(PyDict_Copy(names_.ptr()));
    if (!result) throw py::error_already_set();
    for (const Target& target : targets_) {
      const py::object made = array(target, *batch, owners);
      if (PyDict_SetItem(result.ptr(), target.name.ptr(), made.ptr()) != 0) {
        throw py::error_already_set();
      }
    }
    return result;
  }
  py::list result;
  for (const Target& target : targets_) {
    result.append(array(target, *batch, owners));
    if (target.has_lengths) {
      result.append(lengths_of(batch->columns[target.column], batch->n_rows));
    }
    if (target.has_extents) {
      const Column::Array& extents = batch->columns[target.column].extents;
      const py::ssize_t shape[] = {static_cast<py::ssize_t>(batch->n_rows), 2};
      result.append(new_array(int64_, shape, extents.data, owners[extents.block]));
    }
  }
  return compose_(result);
}

}  // namespace fastrec
