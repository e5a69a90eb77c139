// Casters: types of the core <-> Python objects, in all bindings.
//
// A function of the core whose arguments and results have casters is bound directly.
// pybind11 converts them outside of a call guard, so that the call may release the GIL.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/names.h"
#include "batch/schema.h"
#include "file/file_view.h"
#include "loader/batch_decoder.h"
#include "record/examination.h"
#include "record/recovery.h"

namespace fastrec {

namespace py = pybind11;

// The contiguous buffer of a Python object, whose size cannot change meanwhile. Throws
// BufferError or ValueError if it is strided.
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

// Results that become tuples and objects of Python classes.
py::object to_python(const SkippedSpan& gap);    // a fastrec.on_error.SkippedSpan
py::object to_python(const Finding& finding);    // the same
py::object to_python(const Findings& findings);  // (n_records, [SkippedSpan])
py::object to_python(const UnreadableRow& row);  // a SkippedSpan with its row

template <typename T>
struct ResultCaster {
  static constexpr auto name = py::detail::const_name("object");

  static py::handle cast(const T& result, py::return_value_policy, py::handle) {
    return to_python(result).release();
  }
};

// Converts between an enum with Names and str.
template <Named Enum>
struct NameCaster {
  PYBIND11_TYPE_CASTER(Enum, py::detail::const_name("str"));

  bool load(py::handle source, bool) {
    if (!PyUnicode_Check(source.ptr())) return false;
    const auto text = source.cast<std::string>();
    const std::optional<Enum> found = named<Enum>(text);
    if (!found) throw py::value_error("unknown option '" + text + "'");
    value = *found;
    return true;
  }

  static py::handle cast(Enum source, py::return_value_policy, py::handle) {
    return py::str(name_of(source)).release();
  }
};

// Converts between a struct and the tuple of its `members`.
template <typename T, auto... members>
struct TupleCaster {
  using Tuple =
      std::tuple<std::remove_cvref_t<decltype(std::declval<T&>().*members)>...>;
  PYBIND11_TYPE_CASTER(T, py::detail::make_caster<Tuple>::name);

  bool load(py::handle source, bool convert) {
    py::detail::make_caster<Tuple> tuple;
    if (!tuple.load(source, convert)) return false;
    std::tie(value.*members...) = py::detail::cast_op<Tuple>(std::move(tuple));
    return true;
  }

  static py::handle cast(const T& source, py::return_value_policy, py::handle) {
    return py::make_tuple(source.*members...).release();
  }
};

}  // namespace fastrec

namespace pybind11::detail {

template <fastrec::Named Enum>
struct type_caster_enum_type_enabled<Enum> : std::false_type {};
template <fastrec::Named Enum>
struct type_caster<Enum> : fastrec::NameCaster<Enum> {};

template <typename T>
  requires requires(const T& result) { fastrec::to_python(result); }
struct type_caster<T> : fastrec::ResultCaster<T> {};

template <>
struct type_caster<std::span<const fastrec::SkippedSpan>>
    : list_caster<std::span<const fastrec::SkippedSpan>, fastrec::SkippedSpan> {};

// An argument that is valid during the call: the buffer of any object. Throws TypeError
// if it has none, with a better message than pybind11's.
template <>
struct type_caster<fastrec::Bytes> {
  PYBIND11_TYPE_CASTER(fastrec::Bytes, const_name("Buffer"));

  bool load(handle source, bool) {
    value = view_.emplace(source).bytes();
    return true;
  }

 private:
  std::optional<fastrec::BufferView> view_;
};

// An argument that is valid during the call: an array, or what NumPy can convert to it
// without a loss. None is empty.
template <typename T>
struct type_caster<std::span<const T>> {
  using Array = array_t<T, array::c_style>;
  PYBIND11_TYPE_CASTER(std::span<const T>, make_caster<Array>::name);

  bool load(handle source, bool convert) {
    if (source.is_none()) return true;
    if (!array_.load(source, convert)) return false;
    const auto& array = cast_op<const Array&>(array_);
    value = {array.data(), static_cast<std::size_t>(array.size())};
    return true;
  }

 private:
  make_caster<Array> array_;
};

template <>
struct type_caster<fastrec::FileIdentity>
    : fastrec::TupleCaster<fastrec::FileIdentity, &fastrec::FileIdentity::size,
                           &fastrec::FileIdentity::mtime_ns> {};

// An array of shape (files, 2).
template <>
struct type_caster<std::vector<fastrec::FileIdentity>> {
  using Versions = std::vector<fastrec::FileIdentity>;
  using Array = array_t<std::int64_t, array::c_style>;
  PYBIND11_TYPE_CASTER(Versions, make_caster<Array>::name);
  static_assert(sizeof(fastrec::FileIdentity) == 2 * sizeof(std::int64_t));

  bool load(handle source, bool convert) {
    make_caster<Array> loaded;
    if (!loaded.load(source, convert)) return false;
    const auto& array = cast_op<const Array&>(loaded);
    if (array.size() != 0 && (array.ndim() != 2 || array.shape(1) != 2)) return false;
    value.resize(static_cast<std::size_t>(array.size()) / 2);
    std::memcpy(static_cast<void*>(value.data()), array.data(),
                value.size() * sizeof(fastrec::FileIdentity));
    return true;
  }

  static handle cast(const Versions& versions, return_value_policy, handle) {
    Array array({static_cast<ssize_t>(versions.size()), ssize_t{2}});
    std::memcpy(array.mutable_data(), versions.data(),
                versions.size() * sizeof(fastrec::FileIdentity));
    return array.release();
  }
};

}  // namespace pybind11::detail
