#include <pybind11/stl.h>

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

namespace fastrec {
namespace {

// Ends a wait for a remote store if a signal handler raises, in threads of Python.
void check_signals() {
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) return;
  const py::gil_scoped_acquire acquired;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Leaks the requests in a forked process, where their locks may be held forever.
std::shared_ptr<RangeRequests> make_requests(
    const std::vector<std::pair<std::uint64_t, std::int64_t>>& versions,
    std::uint64_t memory_bytes) {
  std::vector<FileIdentity> files;
  for (const auto& [size, mtime_ns] : versions) files.push_back({size, mtime_ns});
  return {new RangeRequests({.memory_bytes = memory_bytes}, std::move(files)),
          [creator = process_id()](const RangeRequests* requests) {
            if (process_id() == creator) delete requests;
          }};
}

// (id, file, begin, end, needs_fetcher), or None if there is none within `patience_ms`.
py::object take(RangeRequests& requests, std::optional<int> patience_ms) {
  std::optional<std::chrono::milliseconds> patience;
  if (patience_ms) patience = std::chrono::milliseconds(*patience_ms);
  std::optional<RangeRequest> taken;
  {
    const py::gil_scoped_release without_gil;
    taken = requests.take(patience);
  }
  if (!taken) return py::none();
  return py::make_tuple(taken->id, taken->file, taken->begin, taken->end,
                        taken->needs_fetcher);
}

// Keeps the buffer of `data`, which must not change.
void complete(RangeRequests& requests, std::uint64_t id, const py::buffer& data) {
  auto view = owned_by_python(std::make_unique<BufferView>(data));
  const Bytes bytes = view->bytes();
  const py::gil_scoped_release without_gil;
  requests.complete(id, bytes, std::move(view));
}

void fail(RangeRequests& requests, std::uint64_t id, py::object error) {
  const PythonError failure(std::move(error));
  const py::gil_scoped_release without_gil;
  requests.fail(id, std::make_exception_ptr(failure));
}

// (requests, bytes, nanoseconds that readers waited).
py::tuple counts(const RangeRequests& requests) {
  const RangeRequests::Counts counts = requests.counts();
  return py::make_tuple(counts.n_requests, counts.n_bytes, counts.waiting.count());
}

}  // namespace

void register_ranges(py::module_& m) {
  set_default_interrupt_check(&check_signals);

  py::class_<RangeRequests, std::shared_ptr<RangeRequests>>(m, "RangeRequests")
      .def(py::init(&make_requests), py::arg("versions"),
           py::arg("memory_bytes") = RangeLimits().memory_bytes)
      .def("take", &take, py::arg("patience_ms"))
      .def("complete", &complete, py::arg("id"), py::arg("data"))
      .def("fail", &fail, py::arg("id"), py::arg("error"))
      .def("stop", &RangeRequests::stop, py::call_guard<py::gil_scoped_release>())
      .def("set_memory_bytes", &RangeRequests::set_memory_bytes,
           py::arg("memory_bytes"))
      .def("counts", &counts);
}

}  // namespace fastrec
