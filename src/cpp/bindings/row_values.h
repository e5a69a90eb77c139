// RowValues: Python values -> the int64, float32 and byte string values of features.
//
// The type of a value alone decides its kind, as in TensorFlow's guide to
// tf.train.Example: bool, int and integer arrays become int64, floats float32, str and
// bytes byte strings.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "wire/kind.h"

namespace fastrec {

// The name of the current feature, for messages.
struct FeatureLabel {
  py::handle key;
  bool is_list = false;  // a feature list

  std::string text() const;  // "feature 'label'"
};

// The bytes of a `bytes` object.
inline Bytes bytes_of(py::handle bytes) {
  return as_bytes({PyBytes_AS_STRING(bytes.ptr()),
                   static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))});
}

inline std::string type_name(py::handle value) {
  return py::str(py::type::of(value).attr("__name__"));
}

// The values of all features of a row, by kind, in the order of the features.
//
// Numbers are copied. Byte strings are views of objects that are kept alive, so they
// can be read without the GIL, even if other threads change the objects' containers.
class RowValues {
 public:
  // `label` names the current feature and must outlive this.
  explicit RowValues(const FeatureLabel* label) : label_(label) {}

  // Adds the values of a feature. Returns kNone for an empty list. Warns about floats
  // that overflow float32.
  struct Added {
    FeatureKind kind = FeatureKind::kNone;
    std::size_t count = 0;
  };
  Added add(py::handle value);

  void keep_alive(py::handle object) {
    owners_.push_back(py::reinterpret_borrow<py::object>(object));
  }

  // Keeps the buffer of an object alive if it is not str or bytes.
  Bytes view_of_string(py::handle string);

  // Valid after the last add().
  const Bytes* strings() const noexcept { return strings_.data(); }
  const float* floats() const noexcept { return floats_.data(); }
  const std::int64_t* ints() const noexcept { return ints_.data(); }

  // Removes all values but keeps the memory. Needs the GIL.
  void clear() noexcept;

 private:
  Added add_any(py::handle value);
  FeatureKind add_item(py::handle item);
  FeatureKind add_number_array(const py::array& array);
  Added add_list(py::handle list);
  Added add_bytes_array(py::handle value);

  template <typename Source>
  void append_ints(const py::array& array);
  template <typename... Sources>
  void append_ints_of(const py::array& array);
  template <typename Source>
  void append_floats(const py::array& array);
  // Converting to double would lose the bits of a signalling NaN.
  static float narrow(float value) noexcept { return value; }
  float narrow(double value);
  void warn_of_overflow();

  const FeatureLabel* label_;
  std::vector<Bytes> strings_;
  std::vector<float> floats_;
  std::vector<std::int64_t> ints_;
  std::vector<py::object> owners_;
  std::vector<std::unique_ptr<BufferView>> buffers_;
  bool overflowed_ = false;
};

}  // namespace fastrec
