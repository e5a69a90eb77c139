#include <map>
#include <string_view>
#include <vector>

#include "bindings/bindings.h"
#include "decode/values.h"
#include "wire/walk.h"

namespace fastrec {
namespace {

// The entries of a map by key. The last entry of a key wins.
using Entries = std::map<std::string_view, Bytes>;

Error error_in(const Fault& fault, std::string_view key) {
  Error error(fault.code, describe(fault), "");
  error.offset = fault.offset;
  error.feature = key;
  return error;
}

// Converts all features of one record to Python objects, without a schema.
class MessageReader {
 public:
  explicit MessageReader(Bytes record)
      : record_(record),
        bytes_array_(
            py::module_::import("fastrec.arrays").attr("BytesArray").attr("_wrap")) {}

  // Returns (features, lists), each a list of (key, values). `lists` is empty unless
  // the record `is_sequence`.
  py::tuple read(bool is_sequence, std::size_t features_max) {
    Entries maps[2];
    const auto on_entry = [&](std::uint32_t field, Bytes key, Bytes value) {
      Entries& entries = maps[field - 1];
      if (entries.size() <= features_max) entries[as_text(key)] = value;
    };
    const Fault fault = is_sequence ? walk_maps<2>(record_, &joined_, on_entry)
                                    : walk_maps<1>(record_, &joined_, on_entry);
    if (fault) throw error_in(fault, "");
    py::list features, lists;
    for (const Entries& entries : maps) {
      if (entries.size() > features_max) {
        throw error_in({.code = Errc::kTooManyFeatures, .expected = features_max}, "");
      }
    }
    for (const auto& [key, feature] : maps[0]) {
      features.append(py::make_tuple(py::bytes(key), values_of(key, feature)));
    }
    for (const auto& [key, list] : maps[1]) {
      lists.append(py::make_tuple(py::bytes(key), steps_of(key, list)));
    }
    return py::make_tuple(features, lists);
  }

 private:
  // An array of int64 or float32, a BytesArray, or None for a feature without a kind.
  py::object values_of(std::string_view key, Bytes feature) {
    ValueList list;
    std::size_t n = 0;
    py::object values = py::none();
    Fault fault = find_list(feature, &joined_, &list);
    if (!fault && list.kind != FeatureKind::kNone) fault = count_values(list, &n);
    if (!fault) {
      switch (list.kind) {
        case FeatureKind::kNone:
          break;
        case FeatureKind::kBytes:
          values = strings_of(list.message, n);
          break;
        case FeatureKind::kFloat:
          fault = read_numbers<float>(list, n, DType::kFloat32, &values);
          break;
        case FeatureKind::kInt64:
          fault = read_numbers<std::int64_t>(list, n, DType::kInt64, &values);
          break;
      }
    }
    if (fault) throw error_in(located(fault, feature, record_), key);
    return values;
  }

  py::list steps_of(std::string_view key, Bytes list) {
    py::list steps;
    FieldReader fields(list);
    Bytes step;
    while (fields.next_message(1, &step)) steps.append(values_of(key, step));
    if (Fault fault = fields.fault()) {
      fault.offset = static_cast<std::uint64_t>(fields.position() - list.data());
      throw error_in(located(fault, list, record_), key);
    }
    return steps;
  }

  template <typename T>
  static Fault read_numbers(const ValueList& list, std::size_t n, DType dtype,
                            py::object* values) {
    py::array_t<T> array(static_cast<py::ssize_t>(n));
    *values = array;
    return decode_numbers(list, n, dtype,
                          reinterpret_cast<std::uint8_t*>(array.mutable_data()));
  }

  py::object strings_of(Bytes list, std::size_t n) const {
    py::array_t<std::int64_t> offsets(static_cast<py::ssize_t>(n + 1));
    std::int64_t* offset = offsets.mutable_data();
    std::vector<std::uint8_t> data;
    data.reserve(list.size());
    *offset = 0;
    for_each_string(list, [&](Bytes string) {
      data.insert(data.end(), string.begin(), string.end());
      *++offset = static_cast<std::int64_t>(data.size());
    });
    return bytes_array_(
        py::array_t<std::uint8_t>(static_cast<py::ssize_t>(data.size()), data.data()),
        offsets, py::make_tuple(n));
  }

  Bytes record_;
  py::object bytes_array_;
  JoinedMessages joined_;
};

py::tuple decode_message(const py::buffer& record, bool is_sequence,
                         std::size_t features_max) {
  const BufferView view(record);
  // Copies, because values are counted before they are decoded, and another thread
  // could change the memory in between.
  const std::vector<std::uint8_t> copy(view.bytes().begin(), view.bytes().end());
  return MessageReader(copy).read(is_sequence, features_max);
}

}  // namespace

void register_message(py::module_& m) {
  m.def("decode_message", &decode_message, py::arg("record"), py::arg("is_sequence"),
        py::arg("features_max"));
}

}  // namespace fastrec
