#include <utility>

#include "bindings/bindings.h"

namespace fastrec {
namespace {

// Holds a lock of `threading` during a `with` block.
//
// Python 3.14 runs signal handlers after `__enter__`, too: if one raises there, neither
// the block nor `__exit__` runs, but this object is destroyed.
class HeldLock {
 public:
  explicit HeldLock(py::object lock) : lock_(std::move(lock)) {}
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;

  ~HeldLock() {
    if (!is_held_) return;
    const py::error_scope kept;
    const auto released = py::reinterpret_steal<py::object>(
        PyObject_CallMethod(lock_.ptr(), "release", nullptr));
    if (!released) py::error_already_set().discard_as_unraisable(lock_);
  }

  void enter() {
    lock_.attr("acquire")();  // a handler that raises while it waits leaves it free
    is_held_ = true;
  }

  void leave(const py::args&) {
    is_held_ = false;
    lock_.attr("release")();
  }

 private:
  py::object lock_;
  bool is_held_ = false;
};

}  // namespace

void register_held_lock(py::module_& m) {
  py::class_<HeldLock>(m, "HeldLock", py::is_final())
      .def(py::init<py::object>(), py::arg("lock"))
      .def("__enter__", &HeldLock::enter)
      .def("__exit__", &HeldLock::leave);
}

}  // namespace fastrec
