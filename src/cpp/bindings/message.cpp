#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/rows.h"
#include "decode/values.h"
#include "wire/walk.h"

namespace fastrec {
namespace {

// The entries of a map, sorted by key. The last entry of a key wins.
class Entries {
 public:
  using Entry = std::pair<std::string_view, Bytes>;

  explicit Entries(std::size_t n_max) : n_max_(n_max) {}

  // Takes linear time: once there are too many keys, later entries are ignored.
  void add(Bytes key, Bytes value) {
    if (n_settled_ > n_max_) return;
    entries_.emplace_back(as_text(key), value);
    if (entries_.size() > 2 * n_max_) settle();
  }

  // Sorts the entries. Call it after the last one.
  void settle() {
    const auto precedes = [](const Entry& a, const Entry& b) {
      return a.first < b.first;
    };
    const auto descends = [](const Entry& a, const Entry& b) {
      return a.first >= b.first;
    };
    if (std::ranges::adjacent_find(entries_, descends) != entries_.end()) {
      std::ranges::stable_sort(entries_, precedes);
      std::size_t n = 0;
      for (const Entry& entry : entries_) {
        n -= n != 0 && entries_[n - 1].first == entry.first;
        entries_[n++] = entry;
      }
      entries_.resize(n);
    }
    n_settled_ = entries_.size();
  }

  bool is_too_large() const noexcept { return entries_.size() > n_max_; }
  const std::vector<Entry>& all() const noexcept { return entries_; }

 private:
  std::size_t n_max_;
  std::size_t n_settled_ = 0;  // different keys, after settle()
  std::vector<Entry> entries_;
};

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
    Entries maps[2] = {Entries(features_max), Entries(features_max)};
    const auto on_entry = [&](std::uint32_t field, Bytes key, Bytes value) {
      maps[field - 1].add(key, value);
    };
    const Fault fault = is_sequence ? walk_maps<2>(record_, &joined_, on_entry)
                                    : walk_maps<1>(record_, &joined_, on_entry);
    if (fault) throw error_in(fault, "");
    for (Entries& entries : maps) {
      entries.settle();
      if (entries.is_too_large()) {
        throw error_in({.code = Errc::kTooManyFeatures, .expected = features_max}, "");
      }
    }
    py::dict features, lists;
    for (const auto& [key, feature] : maps[0].all()) {
      set_value(features, name_from(key), values_of(key, feature));
    }
    for (const auto& [key, list] : maps[1].all()) {
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
