// The Python boundary: every file here registers a few names in `fastrec._core`.
//
// Four jobs, and no others: convert arguments, release the GIL, turn C++ errors into
// Python exceptions, and hand memory to NumPy without copying it. Anything that could
// be tested from C++ belongs on the other side.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/process.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "loader/batch_decoder.h"
#include "record/catalog.h"
#include "record/examination.h"
#include "record/recovery.h"

namespace fastrec {

namespace py = pybind11;

// Converts an enum that has names to a str, and back.
template <typename Enum>
struct NameCaster {
  PYBIND11_TYPE_CASTER(Enum, py::detail::const_name("str"));

  bool load(py::handle source, bool) {
    if (!PyUnicode_Check(source.ptr())) return false;
    const auto text = source.cast<std::string>();
    const std::optional<Enum> found = named<Enum>(text);
    if (!found) throw py::value_error("there is no option '" + text + "' here");
    value = *found;
    return true;
  }

  static py::handle cast(Enum source, py::return_value_policy, py::handle) {
    return py::str(name_of(source)).release();
  }
};

}  // namespace fastrec

namespace pybind11::detail {

template <>
struct type_caster<fastrec::Content> : fastrec::NameCaster<fastrec::Content> {};
template <>
struct type_caster<fastrec::FeatureKind> : fastrec::NameCaster<fastrec::FeatureKind> {};
template <>
struct type_caster<fastrec::Io> : fastrec::NameCaster<fastrec::Io> {};
template <>
struct type_caster<fastrec::Layout> : fastrec::NameCaster<fastrec::Layout> {};
template <>
struct type_caster<fastrec::OnDamage> : fastrec::NameCaster<fastrec::OnDamage> {};
template <>
struct type_caster<fastrec::PartitionKind>
    : fastrec::NameCaster<fastrec::PartitionKind> {};
template <>
struct type_caster<fastrec::Recovery> : fastrec::NameCaster<fastrec::Recovery> {};
template <>
struct type_caster<fastrec::Section> : fastrec::NameCaster<fastrec::Section> {};

}  // namespace pybind11::detail

namespace fastrec {

void register_arrow(py::module_& m);
void register_slab(py::module_& m);
void register_records(py::module_& m);
void register_features(py::module_& m);
void register_loader(py::module_& m);
void register_streams(py::module_& m);
void register_message(py::module_& m);
void register_survey(py::module_& m);
void register_writer(py::module_& m);

// Raises a RuntimeError in any process but `process_id`: one that was forked from it
// has none of its threads, and perhaps all of its locks.
void check_process(int process_id);

// Bytes as text: what is not UTF-8 becomes backslash escapes.
py::object readable(const std::string& text);

// The exception that `error` is in Python.
py::object exception_of(const Error& error);

// A fastrec.on_error.SkippedSpan of bytes [begin, end); `fields` are keyword arguments.
py::object skipped_span(std::uint64_t begin, std::uint64_t end, const Error& error,
                        const py::dict& fields);

// A list of SkippedSpan.
py::list to_list(std::span<const Gap> gaps);

// (number of records, a list of SkippedSpan).
py::tuple to_tuple(const Findings& findings);

// Contiguous memory of a Python object, which cannot change its size meanwhile. A
// strided one is refused, with BufferError or ValueError.
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

using RecordNumbers = py::array_t<std::int64_t, py::array::c_style>;

// A pointer that threads without the GIL may drop. After the interpreter ended, and in
// a forked process, the object is leaked: page-locked memory belongs to its own
// process.
template <typename T>
std::shared_ptr<T> owned_by_python(std::unique_ptr<T> object) {
  return {object.release(), [made_by = process_id()](T* owned) {
            if (!Py_IsInitialized() || process_id() != made_by) return;
            const py::gil_scoped_acquire acquired;
            delete owned;
          }};
}

// The places of `numbers`, each of which must be in [0, catalog.size()).
std::vector<Place> places_of(const Catalog& catalog, const RecordNumbers& numbers);

// Makes NumPy arrays of the columns of a schema, over the blocks of a batch.
class ArrayMaker {
 public:
  // `compose` turns a list of arrays into a batch; None if each array is a column.
  explicit ArrayMaker(py::object compose);

  // Adds the next column. `shape` is that of a row, or of an item of rows of any
  // lengths. `has_lengths`: a padded column is followed by the lengths of its rows.
  void add(const ColumnSpec& spec, py::object name, py::dtype dtype,
           const std::vector<py::ssize_t>& shape, bool has_lengths);

  // The batch as a dict from column name to array, or what `compose` returns. All
  // arrays in a block have one base, which takes the block.
  py::object arrays(Batch* batch) const;

 private:
  static constexpr std::size_t kMaxAxes = 64;   // of a row: no NumPy has more
  static constexpr std::size_t kBatchAxes = 3;  // rows, width, slots

  struct Target {
    std::size_t column;
    py::object name;
    py::dtype dtype;
    std::vector<py::ssize_t> shape;  // the batch sets the rows and the width
    bool is_ragged, is_padded, has_strings, has_lengths;
    std::size_t item_values;
  };

  py::object array(const Target& target, const Batch& batch,
                   std::span<const py::object> owners) const;

  std::vector<Target> targets_;
  std::size_t n_columns_ = 0;
  py::dict names_;  // of all targets: the model of every batch
  py::dtype int64_, uint8_;
  py::object bytes_array_, ragged_array_, compose_;
  py::object data_, offsets_, shape_, values_, row_splits_;  // names of attributes
};

// A schema, and what makes arrays of its columns.
class BoundSchema {
 public:
  // `columns` holds objects of class Column, which fastrec/features.py makes. `compose`
  // is as for ArrayMaker. `source` is for messages, as Schema has it.
  BoundSchema(const py::list& columns, const py::list& rules, py::object compose,
              std::string source);

  const std::shared_ptr<const Schema>& schema() const noexcept { return schema_; }

  py::object arrays(Batch* batch) const { return maker_.arrays(batch); }

 private:
  std::shared_ptr<const Schema> schema_;
  ArrayMaker maker_;
};

// An array over memory of `array`, which `owner` keeps alive.
py::object view_of(const Array& array, const py::dtype& dtype,
                   const std::vector<py::ssize_t>& shape, const py::handle& owner);

// The Python object that is `block`, and keeps it: one for all arrays that lie in it.
py::object owner_of(std::shared_ptr<Block> block);

}  // namespace fastrec
