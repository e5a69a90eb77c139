#include <mutex>
#include <utility>

#include "bindings/bindings.h"

namespace fastrec {
namespace {

// A reference that threads replace by compare and exchange, with and without the GIL.
//
// Each method is one C call: a signal handler runs before or after it.
class AtomicReference {
 public:
  explicit AtomicReference(py::object value) : value_(std::move(value)) {}

  py::object load() {
    const std::lock_guard lock(mutex_);
    return value_;
  }

  // Returns whether the reference was to `expected`, and is to `desired` now.
  bool compare_exchange(const py::object& expected, py::object desired) {
    const std::lock_guard lock(mutex_);
    if (!value_.is(expected)) return false;
    std::swap(value_, desired);
    return true;
  }

 private:
  std::mutex mutex_;
  py::object value_;
};

}  // namespace

void register_atomic_reference(py::module_& m) {
  py::class_<AtomicReference>(m, "AtomicReference", py::is_final())
      .def(py::init<py::object>(), py::arg("value"))
      .def("load", &AtomicReference::load)
      .def("compare_exchange", &AtomicReference::compare_exchange, py::arg("expected"),
           py::arg("desired"));
}

}  // namespace fastrec
