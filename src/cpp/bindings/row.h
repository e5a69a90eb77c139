// Row: Python values -> the features of one row.
//
// What a value becomes depends on its own type alone, as in TensorFlow's guide to
// tf.train.Example: bool, int and integer arrays become int64, floats float32, str and
// bytes byte strings.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "example/encode.h"

namespace fastrec {

// The bytes of a `bytes` object.
inline Bytes bytes_of(py::handle bytes) {
  return as_bytes({PyBytes_AS_STRING(bytes.ptr()),
                   static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))});
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

}  // namespace fastrec
