// Row: Python mappings -> the features of one tf.train.Example or SequenceExample.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/row_values.h"
#include "encode/encode.h"
#include "encode/feature_order.h"

namespace fastrec {

// Holds copies and references of all values, so it can be encoded without the GIL, even
// if other threads change the mapping meanwhile.
class Row {
 public:
  Row() = default;
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  // Reads the features of a tf.train.Example, and sorts them by `order`. An empty list
  // has the kind that `order` knows; if it knows none, the list is an error. Ints
  // become floats if `order` has the feature as float.
  void fill(py::handle mapping, FeatureOrder* order);

  // Reads a tf.train.SequenceExample: each value of `lists` is an iterable of feature
  // values.
  struct SequenceOrder {
    FeatureOrder context, lists;
  };
  void fill(py::handle context, py::handle lists, SequenceOrder* order);

  // See ExampleEncoder.
  std::uint64_t measure();
  void store(std::uint8_t* out) const noexcept { encoder_.store(out); }

  // Empties the row but keeps its memory. Needs the GIL.
  void clear() noexcept;

 private:
  template <typename OnItem>
  void for_each(py::handle mapping, const char* what, const OnItem& on_item);
  void add_feature(py::handle key, py::handle value);
  void add_steps(py::handle key, py::handle steps);

  void view_values();
  void apply_order(FeatureOrder* features, FeatureOrder* lists);
  void order_feature(std::size_t i, FeatureOrder* order);
  void order_list(std::size_t n, FeatureOrder* order);
  void sort_features();
  void set_kind(std::size_t feature, FeatureKind kind);

  FeatureLabel label_;  // of the current feature
  RowValues values_{&label_};
  std::vector<FeatureValues> features_;  // those of the context, then all steps
  std::vector<std::size_t> counts_;      // values of each feature
  std::vector<py::handle> keys_;         // of each feature; of the list, for steps
  struct List {
    std::size_t begin, end;  // its steps, as indices of features
    Bytes key;
    py::handle name;       // the key as a Python object
    std::size_t position;  // in its order
  };
  std::vector<List> lists_;
  std::vector<FeatureListValues> list_values_;
  // A feature or list that has values for the first time.
  struct NewFeature {
    FeatureOrder* order;
    Bytes key;
    FeatureKind kind;
    py::handle name;         // the key as a Python object
    std::size_t begin, end;  // as indices of features
  };
  std::vector<NewFeature> new_features_;
  std::vector<std::size_t> positions_;  // of features, in their order
  std::size_t n_context_ = 0;           // features that are not steps
  bool is_sequence_ = false;
  std::deque<std::vector<float>> converted_;
  ExampleEncoder encoder_;
};

}  // namespace fastrec
