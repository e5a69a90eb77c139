#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/process.h"
#include "bindings/bindings.h"
#include "file/byte_streams.h"
#include "record/examination.h"
#include "record/index_file.h"
#include "record/stream.h"

namespace fastrec {
namespace {

// Initial room for frames that are read together.
constexpr std::uint64_t kMaxExpectedBytes = 4 << 20;
constexpr std::uint64_t kLastFrameBytes = 64 << 10;

void fail_stream(ByteStreams& streams, std::size_t stream, const std::string& code,
                 const std::string& reason, const std::string& path,
                 std::optional<std::uint64_t> offset) {
  if (code == "memory") {
    streams.fail(stream, std::make_exception_ptr(std::bad_alloc()));
    return;
  }
  Error error(errc_named(code), reason, path);
  error.offset = offset;
  streams.fail(stream, std::make_exception_ptr(error));
}

std::shared_ptr<ByteStreams> make_streams(std::size_t n_streams, std::size_t n_ahead,
                                          std::size_t bytes_ahead) {
  return owned_by_process(
      std::make_unique<ByteStreams>(n_streams, n_ahead, bytes_ahead));
}

void stop(ByteStreams& streams) {
  if (process_id() != streams.process_id()) return;
  const py::gil_scoped_release released;
  streams.stop();
}

// While it waits for a stream, checks for signals and calls `on_wait`, which may raise.
std::unique_ptr<FrameStream> make_frames(std::shared_ptr<ByteStreams> streams,
                                         std::shared_ptr<FileTable> files,
                                         std::vector<std::size_t> order,
                                         Recovery recovery,
                                         std::optional<py::function> on_wait) {
  std::shared_ptr<py::function> called;
  if (on_wait) {
    called = owned_by_python(std::make_unique<py::function>(std::move(*on_wait)));
  }
  const auto on_interval = [called] {
    const py::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (called) (*called)();
  };
  return std::make_unique<FrameStream>(std::move(streams), std::move(files),
                                       std::move(order), on_interval, recovery);
}

py::object next_record(FrameStream& stream) {
  check_process(stream.process_id());
  StreamRecord record;
  if (!without_gil([&] { return stream.next(&record); })) return py::none();
  if (record.fault) throw stream.error_in(record.place, record.fault);
  const Bytes payload = record.payload();
  return py::bytes(reinterpret_cast<const char*>(payload.data()), payload.size());
}

// Verifies the next records, at most `n_records_max`. Returns their number and the size
// of their frames.
py::tuple verify_stream(FrameStream& stream, std::uint64_t n_records_max) {
  check_process(stream.process_id());
  std::uint64_t n_records = 0, n_bytes = 0;
  {
    const py::gil_scoped_release released;
    StreamRecord record;
    while (n_records < n_records_max && stream.next(&record)) {
      if (record.fault) throw stream.error_in(record.place, record.fault);
      ++n_records;
      n_bytes += record.place.frame.size();
    }
  }
  return py::make_tuple(n_records, n_bytes);
}

// Returns the next verified frames and their offsets: up to `n_records_max` frames or
// `target_bytes`, and no frames at the end of the streams.
py::tuple read_stream(FrameStream& stream, std::shared_ptr<BlockPool> pool,
                      std::uint64_t n_records_max, std::uint64_t target_bytes) {
  check_process(stream.process_id());
  GrowingArray data(std::move(pool));
  std::vector<std::uint64_t> offsets = {0};
  {
    const py::gil_scoped_release released;
    // Allocates a block even without frames, and rarely has to grow.
    const auto n_expected = static_cast<std::size_t>(
        std::min(target_bytes, kMaxExpectedBytes) + kLastFrameBytes);
    data.extend(n_expected);
    data.retract(n_expected);
    StreamRecord record;
    while (offsets.size() <= n_records_max && data.size() < target_bytes &&
           stream.next(&record)) {
      if (record.fault) throw stream.error_in(record.place, record.fault);
      std::ranges::copy(record.frame, data.extend(record.frame.size()));
      offsets.push_back(data.size());
    }
  }
  const Array array = data.release();
  return py::make_tuple(
      view_of(array, py::dtype::of<std::uint8_t>(),
              {static_cast<py::ssize_t>(offsets.back())}, owner_of(array.block)),
      array_of(offsets));
}

Index scan_stream(FrameStream& stream, FileIdentity version, unsigned content) {
  check_process(stream.process_id());
  const py::gil_scoped_release released;
  const StreamIndex index = index_of(&stream);
  return Index::of_stream(index.offsets, index.payload_crcs, stream.take_gaps(),
                          version, content_of_code(content));
}

Findings examine_stream(FrameStream& stream, const std::string& name) {
  check_process(stream.process_id());
  return without_gil([&] { return examine(&stream, name); });
}

}  // namespace

void register_streams(py::module_& m) {
  py::class_<ByteStreams, std::shared_ptr<ByteStreams>>(m, "ByteStreams")
      .def(py::init(&make_streams), py::arg("n_streams"), py::arg("n_ahead"),
           py::arg("bytes_ahead"))
      .def("begin", &ByteStreams::begin, py::call_guard<py::gil_scoped_release>())
      .def("push", &ByteStreams::push, py::arg("stream"), py::arg("data"),
           py::call_guard<py::gil_scoped_release>())
      .def("end", &ByteStreams::end, py::arg("stream"),
           py::call_guard<py::gil_scoped_release>())
      .def("fail", &fail_stream, py::arg("stream"), py::arg("code"), py::arg("reason"),
           py::arg("path"), py::arg("offset").none(true),
           py::call_guard<py::gil_scoped_release>())
      .def(
          "fail_with",
          [](ByteStreams& streams, std::size_t stream, py::object error) {
            const PythonError failure(std::move(error));
            const py::gil_scoped_release released;
            streams.fail(stream, std::make_exception_ptr(failure));
          },
          py::arg("stream"), py::arg("error"))
      .def("stop", &stop);

  py::class_<FrameStream>(m, "FrameStream")
      .def(py::init(&make_frames), py::arg("streams"), py::arg("files"),
           py::arg("order"), py::arg("recovery"), py::arg("on_wait") = py::none())
      .def("next", &next_record)
      .def("scan", &scan_stream, py::arg("version"), py::arg("content"))
      .def("examine", &examine_stream, py::arg("name"))
      .def_property_readonly("n_bytes", &FrameStream::n_bytes)
      .def("verify", &verify_stream, py::arg("n_records_max"))
      .def("read_frames", &read_stream, py::arg("pool"), py::arg("n_records_max"),
           py::arg("target_bytes"));
}

}  // namespace fastrec
