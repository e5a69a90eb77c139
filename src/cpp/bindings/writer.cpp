// Writer: rows of Python values -> records of a file.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/row.h"
#include "writer/file_writer.h"

namespace fastrec {
namespace {

// A Row that belongs to nobody else: the spare one of this thread, if no row is being
// filled on it already (a value's own Python code may write another row).
class RowLease {
 public:
  RowLease() : row_(spare() ? std::move(spare()) : std::make_unique<Row>()) {}
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

// A FileWriter for several threads.
//
// Nobody waits for the mutex with the GIL in hand: who has the mutex may be waiting for
// the GIL. The GIL is kept for what takes microseconds, because another thread that got
// it may keep it for milliseconds.
class SharedFileWriter {
 public:
  SharedFileWriter(std::string path, Existing existing)
      : writer_(std::move(path), existing) {}

  template <typename Store>
  void write_record(std::uint64_t length, const Store& store) {
    constexpr std::uint64_t kMostBytesWithGil = 64 << 10;
    const auto write = [&] { writer_.write_record(length, store); };
    if (std::unique_lock lock(mutex_, std::try_to_lock);
        lock && length <= kMostBytesWithGil && writer_.fits(length)) {
      return write();
    }
    without_gil(write);
  }

  template <typename Query>
  auto ask(const Query& query) {
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock) return query(writer_);
    return without_gil([&] { return query(writer_); });
  }

  void close() {
    without_gil([&] { writer_.close(); });
  }
  void abandon() {
    without_gil([&] { writer_.abandon(); });
  }

 private:
  template <typename Action>
  std::invoke_result_t<Action> without_gil(const Action& action) {
    const py::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    return action();
  }

  std::mutex mutex_;
  FileWriter writer_;
};

std::unique_ptr<SharedFileWriter> open_file(py::handle path, bool overwrite) {
  PyObject* encoded = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), static_cast<void*>(&encoded)) == 0) {
    throw py::error_already_set();
  }
  std::string text(as_text(bytes_of(py::reinterpret_steal<py::bytes>(encoded))));
  const py::gil_scoped_release released;
  return std::make_unique<SharedFileWriter>(
      std::move(text), overwrite ? Existing::kReplace : Existing::kRefuse);
}

void write_example(SharedFileWriter& writer, py::handle features) {
  const RowLease row;
  row->fill(features);
  const std::uint64_t size = row->encoder().measure(row->features());
  writer.write_record(size, [&row](std::uint8_t* payload) {
    row->encoder().store(row->features(), payload);
  });
}

void write_record(SharedFileWriter& writer, py::handle record) {
  const BufferView view(record);
  const Bytes bytes = view.bytes();
  writer.write_record(bytes.size(), [bytes](std::uint8_t* payload) {
    if (!bytes.empty()) std::memcpy(payload, bytes.data(), bytes.size());
  });
}

py::bytes encode_example(py::handle features) {
  const RowLease row;
  row->fill(features);
  const std::uint64_t size = row->encoder().measure(row->features());
  auto result = py::reinterpret_steal<py::bytes>(
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!result) throw py::error_already_set();
  row->encoder().store(row->features(), reinterpret_cast<std::uint8_t*>(
                                            PyBytes_AS_STRING(result.ptr())));
  return result;
}

py::str path_of(SharedFileWriter& writer) {
  const std::string path = writer.ask([](const FileWriter& w) { return w.path(); });
  return py::reinterpret_steal<py::str>(PyUnicode_DecodeFSDefaultAndSize(
      path.data(), static_cast<Py_ssize_t>(path.size())));
}

}  // namespace

void register_writer(py::module_& m) {
  py::class_<SharedFileWriter>(m, "FileWriter")
      .def(py::init(&open_file), py::arg("path"), py::kw_only(), py::arg("overwrite"))
      .def("write_example", &write_example, py::arg("features"), py::pos_only())
      .def("write_record", &write_record, py::arg("record"), py::pos_only())
      .def("close", &SharedFileWriter::close)
      .def("abandon", &SharedFileWriter::abandon)
      .def_property_readonly("path", &path_of)
      .def_property_readonly(
          "closed",
          [](SharedFileWriter& writer) {
            return writer.ask([](const FileWriter& w) { return w.closed(); });
          })
      .def_property_readonly(
          "n_records",
          [](SharedFileWriter& writer) {
            return writer.ask([](const FileWriter& w) { return w.n_records(); });
          })
      .def_property_readonly("n_bytes", [](SharedFileWriter& writer) {
        return writer.ask([](const FileWriter& w) { return w.n_bytes(); });
      });
  m.def("encode_example", &encode_example, py::arg("features"), py::pos_only());
}

}  // namespace fastrec
