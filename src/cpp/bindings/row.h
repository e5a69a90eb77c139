// Row: Python values -> the features of one row.
//
// What a value becomes depends on its own type alone, as in TensorFlow's guide to
// tf.train.Example: bool, int and integer arrays become int64, floats float32, str and
// bytes byte strings.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "encode/encode.h"
#include "encode/feature_order.h"

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
  // Takes the features of a tf.train.Example. An empty list has the kind that `order`
  // knows; without one, it is refused. Features come in its order, and ints become
  // floats where it says so.
  void fill(py::handle mapping, FeatureOrder* order);

  // Takes a tf.train.SequenceExample: each value of `lists` is an iterable of what a
  // feature can be.
  struct SequenceOrder {
    FeatureOrder context, lists;
  };
  void fill(py::handle context, py::handle lists, SequenceOrder* order);

  // The size in bytes of what was taken, and then the storing of it: see
  // ExampleEncoder.
  std::uint64_t measure();
  void store(std::uint8_t* out) const noexcept;

  // Forgets the row but keeps the memory. Needs the GIL.
  void clear() noexcept;

 private:
  template <typename OnItem>
  void for_each(py::handle mapping, const char* what, const OnItem& on_item);
  void add_feature(py::handle key, py::handle value);
  void add_steps(py::handle key, py::handle steps);
  void add_value(py::handle value);
  FeatureKind add_item(py::handle item);
  FeatureKind add_number_array(const py::array& array);
  void add_list(py::handle list);
  void add_bytes_array(py::handle value);
  Bytes view_of_string(py::handle string);

  template <typename Source>
  void append_ints(const py::array& array);
  template <typename... Sources>
  void append_ints_of(const py::array& array);
  template <typename Source>
  void append_floats(const py::array& array);
  // A float that went through double would lose the bits of a signalling NaN.
  static float narrow(float value) noexcept { return value; }
  float narrow(double value);
  void warn_of_overflow();

  void set(FeatureKind kind, std::size_t count);
  void view_values();
  void settle(FeatureOrder* features, FeatureOrder* lists);
  void settle_feature(std::size_t i, FeatureOrder* order);
  void settle_list(std::size_t n, FeatureOrder* order);
  void sort_features();
  void give_kind(std::size_t feature, FeatureKind kind);
  std::string where() const;  // "feature 'label'"

  std::vector<FeatureValues> features_;  // those of the context, then all steps
  std::vector<std::size_t> counts_;      // values of each feature
  std::vector<py::handle> keys_;         // of each feature; of the list, for steps
  struct List {
    std::size_t begin, end;  // of its steps, among the features
    Bytes key;
    py::handle name;       // the same
    std::size_t position;  // in its order
  };
  std::vector<List> lists_;
  std::vector<FeatureListValues> list_values_;
  struct Met {  // for the first time with values
    FeatureOrder* order;
    Bytes key;
    FeatureKind kind;
    py::handle name;         // the key
    std::size_t begin, end;  // among the features
  };
  std::vector<Met> met_;
  std::vector<std::size_t> positions_;  // of features, in their order
  std::size_t n_context_ = 0;           // features that are not steps
  bool is_sequence_ = false;
  std::vector<Bytes> strings_;
  std::vector<float> floats_;
  std::vector<std::int64_t> ints_;
  std::deque<std::vector<float>> converted_;
  std::vector<py::object> owners_;
  std::vector<std::unique_ptr<BufferView>> buffers_;
  py::handle key_;        // of the feature at hand
  bool is_step_ = false;  // whether it is a list, and one of its steps is at hand
  bool overflowed_ = false;
  ExampleEncoder encoder_;
};

}  // namespace fastrec
