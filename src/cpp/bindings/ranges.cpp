#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "base/process.h"
#include "bindings/bindings.h"
#include "file/range_requests.h"

namespace pybind11::detail {

template <>
struct type_caster<fastrec::RangeRequest>
    : fastrec::TupleCaster<fastrec::RangeRequest, &fastrec::RangeRequest::id,
                           &fastrec::RangeRequest::file, &fastrec::RangeRequest::begin,
                           &fastrec::RangeRequest::end,
                           &fastrec::RangeRequest::needs_fetcher> {};

}  // namespace pybind11::detail

namespace fastrec {
namespace {

// Ends a wait for a remote store if a signal handler raises, in threads of Python.
void check_signals() {
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) return;
  const py::gil_scoped_acquire acquired;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

std::shared_ptr<RangeRequests> make_requests(std::vector<FileIdentity> versions,
                                             std::uint64_t memory_bytes) {
  return owned_by_process(std::make_unique<RangeRequests>(
      RangeLimits{.memory_bytes = memory_bytes}, std::move(versions)));
}

// Returns None if no request comes within `patience_ms` while another thread waits.
std::optional<RangeRequest> take(RangeRequests& requests,
                                 std::optional<int> patience_ms) {
  std::optional<std::chrono::milliseconds> patience;
  if (patience_ms) patience = std::chrono::milliseconds(*patience_ms);
  return requests.take(patience);
}

// Keeps the buffer of `data`, which must not change.
void complete(RangeRequests& requests, std::uint64_t id, const py::buffer& data) {
  auto view = owned_by_python(std::make_unique<BufferView>(data));
  const Bytes bytes = view->bytes();
  const py::gil_scoped_release released;
  requests.complete(id, bytes, std::move(view));
}

// The same for the first bytes of a file.
void provide(RangeRequests& requests, std::size_t file, const py::buffer& data) {
  auto view = owned_by_python(std::make_unique<BufferView>(data));
  const Bytes bytes = view->bytes();
  const py::gil_scoped_release released;
  requests.provide(file, bytes, std::move(view));
}

// Waits for up to `n_bytes` of a file from `offset` on, and requests `n_ahead` more.
py::bytes read(RangeRequests& requests, std::size_t file, std::uint64_t offset,
               std::uint64_t n_bytes, std::uint64_t n_ahead) {
  Buffer buffer;
  Bytes bytes;
  {
    const py::gil_scoped_release released;
    const std::uint64_t size = requests.identity(file).size;
    if (offset < size) {
      requests.read_ahead(file, offset, std::min(n_bytes + n_ahead, size - offset));
      bytes = requests.read(file, offset,
                            static_cast<std::size_t>(std::min(n_bytes, size - offset)),
                            &buffer, RangeRequests::Use::kPeek);
    }
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void fail(RangeRequests& requests, std::uint64_t id, py::object error) {
  const PythonError failure(std::move(error));
  const py::gil_scoped_release released;
  requests.fail(id, std::make_exception_ptr(failure));
}

}  // namespace

void register_ranges(py::module_& m) {
  set_default_interrupt_check(&check_signals);

  py::class_<RangeRequests, std::shared_ptr<RangeRequests>>(m, "RangeRequests")
      .def(py::init(&make_requests), py::arg("versions"),
           py::arg("memory_bytes") = RangeLimits().memory_bytes)
      .def("take", &take, py::arg("patience_ms"),
           py::call_guard<py::gil_scoped_release>())
      .def("complete", &complete, py::arg("id"), py::arg("data"))
      .def("provide", &provide, py::arg("file"), py::arg("data"))
      .def("read", &read, py::arg("file"), py::arg("offset"), py::arg("n_bytes"),
           py::arg("n_ahead"))
      .def("fail", &fail, py::arg("id"), py::arg("error"))
      .def("stop", &RangeRequests::stop, py::call_guard<py::gil_scoped_release>())
      .def("set_memory_bytes", &RangeRequests::set_memory_bytes,
           py::arg("memory_bytes"))
      .def_property_readonly("waiting_ns", [](const RangeRequests& requests) {
        return requests.counts().waiting.count();
      });
}

}  // namespace fastrec
