// The Python boundary: each file registers a few names in `fastrec._core`.
//
// Bindings only convert arguments, release the GIL, translate errors to Python
// exceptions, and pass memory to NumPy without a copy. Everything that can be tested
// from C++ belongs in another room.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "bindings/casters.h"
#include "bindings/rows.h"
#include "loader/memory_decoder.h"
#include "record/catalog.h"
#include "record/frame_runs.h"

namespace fastrec {

void register_arrow(py::module_& m);
void register_atomic_reference(py::module_& m);
void register_slab(py::module_& m);
void register_indexes(py::module_& m);
void register_records(py::module_& m);
void register_rows(py::module_& m);
void register_features(py::module_& m);
void register_held_lock(py::module_& m);
void register_kept(py::module_& m);
void register_loader(py::module_& m);
void register_order(py::module_& m);
void register_ranges(py::module_& m);
void register_streams(py::module_& m);
void register_message(py::module_& m);
void register_survey(py::module_& m);
void register_writer(py::module_& m);

// Raises a RuntimeError in any process but `process_id`: a forked child lacks the
// threads of its parent, and its locks may be held forever.
void check_process(int process_id);

// Decodes UTF-8; invalid bytes become backslash escapes.
py::object to_text(const std::string& text);
py::list to_texts(const std::vector<std::string>& texts);

// The Python exception for `error`.
py::object exception_of(const Error& error);

// Releases the GIL during `action`.
template <typename Action>
auto without_gil(const Action& action) {
  const py::gil_scoped_release released;
  return action();
}

using Int64Array = py::array_t<std::int64_t, py::array::c_style>;

template <typename T>
py::array_t<T> array_of(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

// A pointer that threads without the GIL may release. The object is leaked after the
// interpreter ends, and in a forked process: page-locked memory belongs to one process.
template <typename T>
std::shared_ptr<T> owned_by_python(std::unique_ptr<T> object) {
  return {object.release(), [creator = process_id()](T* owned) {
            if (!Py_IsInitialized() || process_id() != creator) return;
            const py::gil_scoped_acquire acquired;
            delete owned;
          }};
}

// A pointer that leaks the object in a forked process, where its threads do not exist
// and its locks may be held forever.
template <typename T>
std::shared_ptr<T> owned_by_process(std::unique_ptr<T> object) {
  return {object.release(), [creator = process_id()](const T* owned) {
            if (process_id() == creator) delete owned;
          }};
}

// An exception of Python that passes through the core. Unlike py::error_already_set, it
// can be raised several times.
class PythonError : public std::exception {
 public:
  explicit PythonError(py::object error)
      : error_(owned_by_python(std::make_unique<py::object>(std::move(error)))) {}

  const char* what() const noexcept override { return "an exception of Python"; }
  // Needs the GIL.
  void raise() const {
    PyErr_SetObject(py::type::handle_of(*error_).ptr(), error_->ptr());
  }

 private:
  std::shared_ptr<py::object> error_;
};

// Numbers of records, or positions.
using Numbers = std::span<const std::int64_t>;

std::vector<std::uint64_t> from_array(Numbers numbers);

// The frames of `numbers`, each of which must be in [0, catalog.size()).
FrameRuns frames_of(const Catalog& catalog, Numbers numbers);

// An array of shape (records, 4): file, record in the file, begin and end of its frame.
Int64Array places_array(const FrameRuns& frames);

// Creates the NumPy arrays of a schema as views of the blocks of a batch.
class ArrayMaker {
 public:
  // `compose` converts a list of arrays to a batch; None if each array is a column.
  explicit ArrayMaker(py::object compose);

  // Adds the next column. `shape` is the shape of a row, or of an item of a ragged or
  // padded column. With `has_lengths`, a padded column is followed by its row lengths,
  // and with a reach, by its extents, an array of shape (rows, 2).
  void add(const ColumnSpec& spec, py::object name, py::dtype dtype,
           const std::vector<py::ssize_t>& shape, bool has_lengths);

  // Returns the batch as a dict of arrays by column name, or the result of `compose`.
  // All arrays of a block share one base object, which owns the block.
  py::object arrays(Batch* batch) const;

  // Whether rows can be created without `compose`.
  bool creates_rows() const noexcept { return compose_.is_none(); }

  // Returns the only row of `columns`, or else of `batch`, as a dict of values that own
  // their memory.
  py::object row(std::span<const Column> columns, Batch* batch) const;

 private:
  static constexpr std::size_t kMaxAxes = 64;   // of a row, the limit of NumPy 2
  static constexpr std::size_t kBatchAxes = 3;  // rows, width, slots

  struct Target {
    std::size_t column;
    py::object name;
    py::dtype dtype;
    std::vector<py::ssize_t> shape;  // the batch sets the rows and the width
    bool is_ragged, is_padded, has_strings, has_lengths, has_extents;
    std::size_t item_values;
  };

  using Axes = std::array<py::ssize_t, kMaxAxes + kBatchAxes>;

  static std::span<const py::ssize_t> shape_of(const Target& target,
                                               const Column& column, std::size_t n_rows,
                                               Axes* axes);
  py::object array(const Target& target, const Batch& batch,
                   std::span<const py::object> owners) const;

  std::vector<Target> targets_;
  std::size_t n_columns_ = 0;
  py::dict names_;  // of all targets: copied for every batch
  py::dtype int64_, uint8_;
  py::object compose_;
};

// A schema and the ArrayMaker of its columns.
class BoundSchema {
 public:
  // `columns` holds objects of fastrec.features.base.Column. See ArrayMaker for
  // `compose`, and Schema for `source`.
  BoundSchema(const py::list& columns, const py::list& rules, py::object compose,
              std::string source);

  const std::shared_ptr<const Schema>& schema() const noexcept { return schema_; }
  const ArrayMaker& maker() const noexcept { return maker_; }

  py::object arrays(Batch* batch) const { return maker_.arrays(batch); }

  // Decodes one record to a row. `pool` is the same in all calls.
  py::object parse_row(const std::shared_ptr<BlockPool>& pool, Bytes record) const;

 private:
  std::shared_ptr<const Schema> schema_;
  ArrayMaker maker_;
  mutable IdleList<MemoryDecoder> decoders_;
};

// A NumPy view of `array`, which `owner` keeps alive.
py::object view_of(const Array& array, const py::dtype& dtype,
                   const std::vector<py::ssize_t>& shape, const py::handle& owner);

// The Python object that owns `block`: the common base of all arrays in it.
py::object owner_of(std::shared_ptr<Block> block);

}  // namespace fastrec
