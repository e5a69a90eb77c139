// Writer: rows and columns of Python values -> frames.

#include <pybind11/critical_section.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/row.h"
#include "encode/encode_batch.h"
#include "encode/feature_order.h"
#include "encode/frame_buffer.h"

namespace fastrec {
namespace {

// An exclusive Row: the spare one of this thread, or a new one if it is in use (Python
// code of a value may write another row).
class RowLease {
 public:
  RowLease() : row_(std::move(spare())) {
    if (!row_) row_ = std::make_unique<Row>();
  }
  ~RowLease() {
    row_->clear();
    spare() = std::move(row_);
  }
  RowLease(const RowLease&) = delete;
  RowLease& operator=(const RowLease&) = delete;

  Row* operator->() const noexcept { return row_.get(); }

 private:
  static std::unique_ptr<Row>& spare() {
    thread_local std::unique_ptr<Row> row;
    return row;
  }

  std::unique_ptr<Row> row_;
};

class ArrayLayout;

// A BatchEncoder, and the arrays whose memory it reads.
struct BoundEncoder {
  BatchEncoder encoder;
  std::vector<py::array> owners;
  // Null unless batches of the same layout need no conversion.
  std::shared_ptr<const ArrayLayout> layout;
};

// The names, dtypes and row shapes of a dict of arrays. A batch of the same layout is
// encoded without running Python code.
class ArrayLayout : public std::enable_shared_from_this<ArrayLayout> {
 public:
  // The layout of `columns`, which Python code converted to the ColumnValues (see
  // fastrec.example.columns) of `encoder`. Null if another batch of this layout may
  // need another conversion.
  static std::shared_ptr<const ArrayLayout> of(py::handle columns,
                                               const py::list& converted,
                                               const BatchEncoder& encoder) {
    if (!PyDict_CheckExact(columns.ptr()) || converted.empty() ||
        py::len(columns) != converted.size()) {
      return nullptr;
    }
    std::unordered_map<PyObject*, std::size_t> places;
    for (std::size_t i = 0; i < converted.size(); ++i) {
      places.emplace(converted[i].attr("name").ptr(), i);
    }
    auto layout = std::make_shared<ArrayLayout>(encoder);
    for (const auto& [name, value] : py::reinterpret_borrow<py::dict>(columns)) {
      const auto place = places.find(name.ptr());
      if (place == places.end() || !is_plain_array(value)) return nullptr;
      const auto array = py::reinterpret_borrow<py::array>(value);
      if (!is_in_place(array, converted[place->second])) return nullptr;
      layout->columns_.push_back({py::reinterpret_borrow<py::object>(name),
                                  array.dtype(),
                                  {array.shape() + 1, array.shape() + array.ndim()},
                                  array.nbytes() / array.shape(0),
                                  place->second});
    }
    return layout;
  }

  explicit ArrayLayout(const BatchEncoder& encoder) : encoder_(encoder) {}

  // The encoder of a batch, or null if it has another layout.
  std::unique_ptr<BoundEncoder> encoder(py::handle columns) const {
    if (!PyDict_CheckExact(columns.ptr())) return nullptr;
    std::vector<py::array> arrays;
    std::vector<Bytes> values(columns_.size());
    const py::scoped_critical_section guard(columns);
    if (py::len(columns) != columns_.size()) return nullptr;
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(columns.ptr(), &at, &name, &value);) {
      const Column& column = columns_[arrays.size()];
      if (!column.fits(name, value)) return nullptr;
      auto array = py::reinterpret_borrow<py::array>(value);
      if (array.shape(0) != (arrays.empty() ? array : arrays[0]).shape(0)) {
        return nullptr;
      }
      values[column.place] = {
          static_cast<const std::uint8_t*>(array.data()),
          static_cast<std::size_t>(array.shape(0) * column.row_bytes)};
      arrays.push_back(std::move(array));
    }
    const auto n_rows = static_cast<std::size_t>(arrays[0].shape(0));
    return std::make_unique<BoundEncoder>(BoundEncoder{
        encoder_.with_values(values, n_rows), std::move(arrays), shared_from_this()});
  }

 private:
  struct Column {
    py::object name;
    py::dtype dtype;
    std::vector<py::ssize_t> row_shape;
    py::ssize_t row_bytes;
    std::size_t place;  // in the encoder

    bool fits(py::handle other_name, py::handle value) const {
      if (!name.is(other_name) &&
          !(PyUnicode_CheckExact(name.ptr()) &&
            PyUnicode_CheckExact(other_name.ptr()) &&
            PyUnicode_Compare(name.ptr(), other_name.ptr()) == 0)) {
        return false;
      }
      if (!is_plain_array(value)) return false;
      const auto array = py::reinterpret_borrow<py::array>(value);
      return array.dtype().is(dtype) && (array.flags() & py::array::c_style) != 0 &&
             std::equal(row_shape.begin(), row_shape.end(), array.shape() + 1,
                        array.shape() + array.ndim());
    }
  };

  // Whether it is a numpy.ndarray with rows, and not a subclass such as MaskedArray.
  static bool is_plain_array(py::handle value) {
    return Py_TYPE(value.ptr()) == py::detail::npy_api::get().PyArray_Type_ &&
           py::reinterpret_borrow<py::array>(value).ndim() != 0;
  }

  // Whether the memory of an array is encoded directly, whatever its values.
  static bool is_in_place(const py::array& array, const py::object& converted) {
    const auto values = converted.attr("values").cast<py::array>();
    return array.nbytes() != 0 && values.data() == array.data() &&
           values.nbytes() == array.nbytes() &&
           converted.attr("row_splits").is_none() &&
           converted.attr("offsets").is_none() && converted.attr("present").is_none() &&
           !converted.attr("is_range_checked").cast<bool>();
  }

  std::vector<Column> columns_;
  BatchEncoder encoder_;
};

// A thread-safe FrameBuffer.
//
// A thread that waits for the mutex must not hold the GIL, because the owner of the
// mutex may be waiting for the GIL. Actions of microseconds keep the GIL, because
// another thread may hold it for milliseconds.
class SharedFrameBuffer {
 public:
  SharedFrameBuffer(std::shared_ptr<BlockPool> pool, std::size_t n_bytes)
      : buffer_(std::move(pool), n_bytes) {}

  // Returns the size of the buffer after adding.
  template <typename Store>
  std::uint64_t add(std::uint64_t length, const Store& store) {
    constexpr std::uint64_t kMaxBytesWithGil = 64 << 10;
    const auto add = [&] {
      buffer_.add(length, store);
      return buffer_.n_bytes();
    };
    if (std::unique_lock lock(mutex_, std::try_to_lock);
        lock && length <= kMaxBytesWithGil) {
      return add();
    }
    return without_gil(add);
  }

  std::uint64_t add_example(py::handle row, FeatureOrder* order) {
    const RowLease lease;
    lease->fill(row, order);
    return add_row(lease);
  }

  std::uint64_t add_sequence(py::handle context, py::handle lists,
                             Row::SequenceOrder* order) {
    const RowLease lease;
    lease->fill(context, lists, order);
    return add_row(lease);
  }

  std::uint64_t add_record(py::handle record) {
    const BufferView view(record);
    const Bytes bytes = view.bytes();
    if (bytes.size() > kMaxPayloadBytes) {
      throw py::value_error(
          "a record must have at most " + std::to_string(kMaxPayloadBytes) +
          " bytes, the limit of protobuf (TFRecord files allow 2^64 - 1), got " +
          std::to_string(bytes.size()) + "; split it into several records");
    }
    return add(bytes.size(), [bytes](std::uint8_t* payload) {
      if (!bytes.empty()) std::memcpy(payload, bytes.data(), bytes.size());
    });
  }

  std::size_t add_rows(const BoundEncoder& bound, std::size_t begin, std::size_t end,
                       std::size_t step, std::uint64_t target_bytes) {
    if (end > bound.encoder.n_rows() || step == 0) {
      throw py::index_error("rows must be below n_rows, and step must be positive");
    }
    return without_gil([&] {
      return buffer_.add_rows(bound.encoder, begin, end, step, target_bytes);
    });
  }

  std::uint64_t add_frames(const py::array_t<std::uint8_t>& data,
                           const Int64Array& offsets, const Int64Array& indices) {
    const Bytes bytes(data.data(), static_cast<std::size_t>(data.size()));
    const std::span bounds(offsets.data(), static_cast<std::size_t>(offsets.size()));
    const std::span frames(indices.data(), static_cast<std::size_t>(indices.size()));
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      if (bounds[i] < (i == 0 ? 0 : bounds[i - 1]) || bounds[i] > data.size()) {
        throw py::value_error("offsets must ascend within frames");
      }
    }
    for (const std::int64_t frame : frames) {
      if (frame < 0 || frame + 1 >= offsets.size()) {
        throw py::index_error("indices must be below the number of frames");
      }
    }
    return without_gil([&] {
      buffer_.add_frames(bytes, bounds, frames);
      return buffer_.n_bytes();
    });
  }

  // The totals since the beginning, including what take() returned.
  std::uint64_t n_records() {
    return query_locked([&] { return n_records_taken_ + buffer_.n_records(); });
  }
  std::uint64_t n_bytes() {
    return query_locked([&] { return n_bytes_taken_ + buffer_.n_bytes(); });
  }

  py::tuple take() {
    const Frames frames = without_gil([&] {
      n_records_taken_ += buffer_.n_records();
      n_bytes_taken_ += buffer_.n_bytes();
      return buffer_.take();
    });
    const auto n_bytes = static_cast<py::ssize_t>(frames.offsets.back());
    return py::make_tuple(view_of(frames.array, py::dtype::of<std::uint8_t>(),
                                  {n_bytes}, owner_of(frames.array.block)),
                          array_of(frames.offsets));
  }

 private:
  std::uint64_t add_row(const RowLease& row) {
    return add(row->measure(), [&row](std::uint8_t* payload) { row->store(payload); });
  }

  template <typename Query>
  std::uint64_t query_locked(const Query& query) {
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock) return query();
    return without_gil(query);
  }

  template <typename Action>
  std::invoke_result_t<Action> without_gil(const Action& action) {
    const py::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    return action();
  }

  std::mutex mutex_;
  FrameBuffer buffer_;
  std::uint64_t n_records_taken_ = 0;
  std::uint64_t n_bytes_taken_ = 0;
};

py::bytes encoded(const RowLease& row) {
  const std::uint64_t size = row->measure();
  auto result = py::reinterpret_steal<py::bytes>(
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!result) throw py::error_already_set();
  row->store(reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(result.ptr())));
  return result;
}

py::bytes encode_example(py::handle features) {
  const RowLease row;
  row->fill(features, nullptr);
  return encoded(row);
}

py::bytes encode_sequence_example(py::handle context, py::handle lists) {
  const RowLease row;
  row->fill(context, lists, nullptr);
  return encoded(row);
}

std::vector<std::int64_t> copied(const py::object& array) {
  if (array.is_none()) return {};
  const auto values = array.cast<Int64Array>();
  return {values.data(), values.data() + values.size()};
}

// `columns` are fastrec.example.columns.ColumnValues, converted from `caller_columns`.
std::unique_ptr<BoundEncoder> make_encoder(const py::list& columns, std::size_t n_rows,
                                           const py::object& caller_columns) {
  std::vector<ColumnValues> bound;
  std::vector<py::array> owners;
  for (const py::handle item : columns) {
    const auto values = item.attr("values").cast<py::array>();
    if ((values.flags() & py::array::c_style) == 0) {
      throw py::value_error("values must be contiguous");
    }
    ColumnValues column;
    column.key = item.attr("key").cast<std::string>();
    column.kind = item.attr("kind").cast<FeatureKind>();
    column.values = {static_cast<const std::uint8_t*>(values.data()),
                     static_cast<std::size_t>(values.nbytes())};
    column.n_values = item.attr("n_values").cast<std::size_t>();
    column.row_splits = copied(item.attr("row_splits"));
    column.string_bytes = item.attr("string_bytes").cast<std::size_t>();
    column.offsets = copied(item.attr("offsets"));
    if (const py::object present = item.attr("present"); !present.is_none()) {
      const auto flags = present.cast<py::array_t<bool, py::array::c_style>>();
      column.present.assign(flags.data(), flags.data() + flags.size());
    }
    bound.push_back(std::move(column));
    owners.push_back(values);
  }
  const BatchEncoder encoder(std::move(bound), n_rows);
  return std::make_unique<BoundEncoder>(BoundEncoder{
      encoder, std::move(owners), ArrayLayout::of(caller_columns, columns, encoder)});
}

}  // namespace

void register_writer(py::module_& m) {
  py::class_<FeatureOrder>(m, "FeatureOrder")
      .def(py::init<>())
      .def(
          "place",
          [](FeatureOrder& order, const std::string& key, FeatureKind kind) {
            const FeatureOrder::Place place = order.place(as_bytes(key), kind);
            return std::tuple(place.position, place.kind);
          },
          py::arg("key"), py::arg("kind"));
  py::class_<Row::SequenceOrder>(m, "SequenceOrder").def(py::init<>());

  py::class_<BoundEncoder>(m, "BatchEncoder")
      .def(py::init(&make_encoder), py::arg("columns"), py::arg("n_rows"),
           py::arg("caller_columns"))
      // The default policy of properties would keep the encoder and its arrays alive.
      .def_property_readonly(
          "layout", [](const BoundEncoder& bound) { return bound.layout; },
          py::return_value_policy::automatic)
      .def_property_readonly(
          "n_rows", [](const BoundEncoder& bound) { return bound.encoder.n_rows(); })
      .def("row_bytes",
           [](const BoundEncoder& bound) { return bound.encoder.row_bytes(); });
  py::class_<ArrayLayout, py::smart_holder>(m, "ArrayLayout")
      .def("encoder", &ArrayLayout::encoder, py::arg("columns"));

  py::class_<SharedFrameBuffer>(m, "FrameBuffer")
      .def(py::init<std::shared_ptr<BlockPool>, std::size_t>(), py::arg("pool"),
           py::arg("n_bytes") = 0)
      .def("add_example", &SharedFrameBuffer::add_example, py::arg("row"),
           py::arg("order"))
      .def("add_sequence", &SharedFrameBuffer::add_sequence, py::arg("context"),
           py::arg("feature_lists"), py::arg("order"))
      .def("add_record", &SharedFrameBuffer::add_record, py::arg("record"))
      .def("add_rows", &SharedFrameBuffer::add_rows, py::arg("encoder"),
           py::arg("begin"), py::arg("end"), py::arg("step"), py::arg("target_bytes"))
      .def("add_frames", &SharedFrameBuffer::add_frames, py::arg("frames"),
           py::arg("offsets"), py::arg("indices"))
      .def("take", &SharedFrameBuffer::take)
      .def_property_readonly("n_records", &SharedFrameBuffer::n_records)
      .def_property_readonly("n_bytes", &SharedFrameBuffer::n_bytes);
  m.def("encode_example", &encode_example, py::arg("row"), py::pos_only());
  m.def("encode_sequence_example", &encode_sequence_example, py::arg("context"),
        py::arg("feature_lists"));
}

}  // namespace fastrec
