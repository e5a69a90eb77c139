#include <algorithm>
#include <array>
#include <map>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/rows.h"
#include "decode/values.h"
#include "wire/walk.h"

namespace fastrec {
namespace {

// The entries of a map, by key. The last entry of a key wins.
using Entries = std::pmr::map<std::string_view, Bytes>;

Error error_in(const Fault& fault, std::string_view key) {
  Error error(fault.code, describe(fault), "");
  error.offset = fault.offset;
  error.feature = key;
  return error;
}

// The name of a feature: str if it is UTF-8, otherwise bytes.
py::object name_from(std::string_view key) {
  const auto size = static_cast<py::ssize_t>(key.size());
  auto name = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(key.data(), size, nullptr));
  if (name) return name;
  PyErr_Clear();
  return py::bytes(key.data(), key.size());
}

// Converts all features of one record to Python objects, without a schema.
class MessageReader {
 public:
  explicit MessageReader(Bytes record) : record_(record) {}

  // Returns (features, lists), both by name. `lists` is empty unless the record
  // `is_sequence`.
  py::tuple read(bool is_sequence, std::size_t features_max) {
    std::array<std::byte, 4096> room;  // for the entries of most records
    std::pmr::monotonic_buffer_resource memory(room.data(), room.size());
    Entries maps[2] = {Entries(&memory), Entries(&memory)};
    const auto on_entry = [&](std::uint32_t field, Bytes key, Bytes value) {
      Entries& entries = maps[field - 1];
      if (entries.size() <= features_max) entries[as_text(key)] = value;
    };
    const Fault fault = is_sequence ? walk_maps<2>(record_, &joined_, on_entry)
                                    : walk_maps<1>(record_, &joined_, on_entry);
    if (fault) throw error_in(fault, "");
    if (std::max(maps[0].size(), maps[1].size()) > features_max) {
      throw error_in({.code = Errc::kTooManyFeatures, .expected = features_max}, "");
    }
    py::dict features, lists;
    for (const auto& [key, feature] : maps[0]) {
      set_value(features, name_from(key), values_of(key, feature));
    }
    for (const auto& [key, list] : maps[1]) {
      set_value(lists, name_from(key), steps_of(key, list));
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
    std::uint8_t* memory;
    *values = new_vector(py::dtype::of<T>(), n, &memory);
    return decode_numbers(list, n, dtype, memory);
  }

  static py::object strings_of(Bytes list, std::size_t n) {
    std::size_t n_bytes = 0;
    for_each_string(list, [&](Bytes string) { n_bytes += string.size(); });
    std::uint8_t *data, *ends;
    const py::object bytes = new_vector(py::dtype::of<std::uint8_t>(), n_bytes, &data);
    const py::object offsets = new_vector(py::dtype::of<std::int64_t>(), n + 1, &ends);
    auto* offset = reinterpret_cast<std::int64_t*>(ends);
    *offset = 0;
    for_each_string(list, [&](Bytes string) {
      data = std::ranges::copy(string, data).out;
      offset[1] = offset[0] + static_cast<std::int64_t>(string.size());
      ++offset;
    });
    const ArrayTypes& types = ArrayTypes::get();
    return new_object<3>(types.bytes_array, {{{types.data, bytes},
                                              {types.offsets, offsets},
                                              {types.shape, py::make_tuple(n)}}});
  }

  Bytes record_;
  JoinedMessages joined_;
};

py::tuple decode_message(const py::buffer& record, bool is_sequence,
                         std::size_t features_max) {
  const BufferView view(record);
  if (PyBytes_CheckExact(record.ptr())) {
    return MessageReader(view.bytes()).read(is_sequence, features_max);
  }
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
