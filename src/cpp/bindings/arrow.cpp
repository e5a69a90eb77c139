#include "batch/arrow.h"

#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "bindings/bindings.h"

namespace fastrec {
namespace {

// References that threads without the GIL have released. The main thread decrements
// them between two bytecodes, or the next request for a batch does. A thread cannot,
// because it cannot find out whether it holds the GIL (PyGILState_Check is always true
// once a second interpreter exists).
class DeferredReleases {
 public:
  struct Reference {
    PyObject* object;
    Reference* next;
  };

  // Needs no GIL.
  static void push(Reference* reference) noexcept {
    Reference* first = first_.load(std::memory_order_relaxed);
    do {
      reference->next = first;
    } while (!first_.compare_exchange_weak(first, reference, std::memory_order_release,
                                           std::memory_order_relaxed));
    // If the queue of pending calls is full, the next batch decrements them.
    if (first == nullptr) (void)Py_AddPendingCall(&drop_all_pending, nullptr);
  }

  static void drop_all() noexcept {
    Reference* reference = first_.exchange(nullptr, std::memory_order_acquire);
    while (reference != nullptr) {
      Reference* next = reference->next;
      Py_DECREF(reference->object);
      delete reference;
      reference = next;
    }
  }

 private:
  static int drop_all_pending(void*) noexcept {
    drop_all();
    return 0;
  }

  static inline std::atomic<Reference*> first_{nullptr};
};

// Keeps `object` alive with the result, which any thread may release. Leaks it after
// the interpreter ends.
std::shared_ptr<void> kept_alive(const py::handle& object) {
  using Reference = DeferredReleases::Reference;
  auto* reference = new Reference{object.inc_ref().ptr(), nullptr};
  return {reference, [](Reference* dropped) {
            if (Py_IsInitialized()) DeferredReleases::push(dropped);
          }};
}

// The object that owns the memory of `array`, through all views of views.
py::object memory_of(const py::array& array) {
  py::object found = array;
  while (py::isinstance<py::array>(found)) {
    py::object base = found.attr("base");
    if (base.is_none()) break;
    found = std::move(base);
  }
  return found;
}

// The memory of an array, which may come from outside the core. None means no memory.
Array buffer_of(const py::handle& buffer) {
  if (buffer.is_none()) return {};
  if (!py::isinstance<py::array>(buffer))
    throw py::type_error("a buffer must be an array or None");
  const auto array = py::reinterpret_borrow<py::array>(buffer);
  auto* data = static_cast<std::uint8_t*>(const_cast<void*>(array.data()));
  const py::object memory = memory_of(array);
  if (py::isinstance<Block>(memory)) {
    return {memory.cast<std::shared_ptr<Block>>(), data};
  }
  const auto size = static_cast<std::size_t>(array.nbytes());
  return {std::make_shared<Block>(ForeignMemory{data, kept_alive(array)}, size), data};
}

ArrowField field_of(const py::handle& field) {
  ArrowField result{field.attr("name").cast<std::string>(),
                    field.attr("format").cast<std::string>(),
                    field.attr("is_nullable").cast<bool>(),
                    {}};
  for (const py::handle child : field.attr("children")) {
    result.children.push_back(field_of(child));
  }
  return result;
}

ArrowValues values_of(const py::handle& values) {
  ArrowValues result;
  result.length = values.attr("length").cast<std::int64_t>();
  result.null_count = values.attr("null_count").cast<std::int64_t>();
  for (const py::handle buffer : values.attr("buffers")) {
    result.buffers.push_back(buffer_of(buffer));
  }
  for (const py::handle child : values.attr("children")) {
    result.children.push_back(values_of(child));
  }
  return result;
}

// The names of the capsules of the Arrow PyCapsule Interface. A consumer that moves a
// struct out of a capsule leaves a null `release`.

template <typename Struct>
constexpr const char* kCapsuleName = nullptr;
template <>
constexpr const char* kCapsuleName<ArrowSchema> = "arrow_schema";
template <>
constexpr const char* kCapsuleName<ArrowArray> = "arrow_array";
template <>
constexpr const char* kCapsuleName<ArrowArrayStream> = "arrow_array_stream";

template <typename Struct>
Struct* struct_in(PyObject* capsule) {
  void* pointer = PyCapsule_GetPointer(capsule, kCapsuleName<Struct>);
  if (pointer == nullptr) throw py::error_already_set();
  return static_cast<Struct*>(pointer);
}

template <typename Struct>
void release_capsule(PyObject* capsule) {
  auto* owned =
      static_cast<Struct*>(PyCapsule_GetPointer(capsule, kCapsuleName<Struct>));
  if (owned->release != nullptr) owned->release(owned);
  delete owned;
}

// A capsule with a released struct, for an export that may fail.
template <typename Struct>
py::object empty_capsule() {
  auto owned = std::make_unique<Struct>();
  const auto capsule = py::reinterpret_steal<py::object>(
      PyCapsule_New(owned.get(), kCapsuleName<Struct>, &release_capsule<Struct>));
  if (!capsule) throw py::error_already_set();
  (void)owned.release();
  return capsule;
}

py::object schema_capsule(const py::handle& field) {
  py::object capsule = empty_capsule<ArrowSchema>();
  export_field(field_of(field), struct_in<ArrowSchema>(capsule.ptr()));
  return capsule;
}

py::object array_capsule(const py::handle& values) {
  DeferredReleases::drop_all();
  py::object capsule = empty_capsule<ArrowArray>();
  export_values(values_of(values), struct_in<ArrowArray>(capsule.ptr()));
  return capsule;
}

// The largest errno of Linux.
constexpr long kErrnoMax = 4095;

// The errno that lets consumers of a stream raise a similar error.
int errno_of(const py::error_already_set& error) {
  if (error.matches(PyExc_OSError)) {
    // The attribute may hold any object.
    const py::object number = py::getattr(error.value(), "errno", py::none());
    int overflow = 0;
    const long value = py::isinstance<py::int_>(number)
                           ? PyLong_AsLongAndOverflow(number.ptr(), &overflow)
                           : 0;
    return value > 0 && value <= kErrnoMax ? static_cast<int>(value) : EIO;
  }
  if (error.matches(PyExc_KeyboardInterrupt)) return EINTR;
  if (error.matches(PyExc_MemoryError)) return ENOMEM;
  if (error.matches(PyExc_NotImplementedError)) return ENOSYS;
  return error.matches(PyExc_ValueError) ? EINVAL : EIO;
}

// The stream error for an exception: its class and message.
ArrowStreamError stream_error(const py::error_already_set& error) {
  const auto name = error.type().attr("__name__").cast<std::string>();
  std::string text;
  try {
    // File names may have undecodable bytes, and a zero byte would end a C string.
    text = py::str(error.value())
               .attr("replace")(py::str("\0", 1), "\\x00")
               .attr("encode")("utf-8", "backslashreplace")
               .cast<std::string>();
  } catch (const py::error_already_set&) {
    return {errno_of(error), name};  // str(error) failed
  }
  return {errno_of(error), text.empty() ? name : name + ": " + text};
}

// The identifier of the main thread, which handles signals.
unsigned long main_thread() {
  const py::object main = py::module_::import("threading").attr("main_thread")();
  return main.attr("ident").cast<unsigned long>();
}

// Raises an exception in the main thread between two bytecodes.
void raise_in_main_thread(const py::error_already_set& error) {
  const auto raise = [](void* copied) {
    const std::unique_ptr<py::error_already_set> raised(
        static_cast<py::error_already_set*>(copied));
    raised->restore();
    return -1;
  };
  auto* copy = new py::error_already_set(error);
  // If the queue of pending calls is full, only the stream reports the error.
  if (Py_AddPendingCall(raise, copy) != 0) delete copy;
}

// The batches of a Python iterator.
class PythonBatches {
 public:
  explicit PythonBatches(py::iterator batches)
      : batches_(owned_by_python(std::make_unique<py::iterator>(std::move(batches)))) {}

  // See ArrowBatches.
  bool operator()(ArrowValues* values) {
    if (!Py_IsInitialized()) throw ArrowStreamError(EIO, "Python has ended");
    const py::gil_scoped_acquire acquired;
    DeferredReleases::drop_all();
    try {
      return next_of_python(values);
    } catch (const py::error_already_set& error) {
      ArrowStreamError stream_failure = stream_error(error);
      batches_.reset();
      // A stream cannot report KeyboardInterrupt or SystemExit. In other threads, those
      // do not end the program anyway. No Python code runs here: a second signal would
      // replace the error.
      if (!error.matches(PyExc_Exception) &&
          PyThread_get_thread_ident() == main_thread_) {
        raise_in_main_thread(error);
      }
      throw stream_failure;
    }
  }

 private:
  bool next_of_python(ArrowValues* values) {
    const auto batch = py::reinterpret_steal<py::object>(PyIter_Next(batches_->ptr()));
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (!batch) return false;
    *values = values_of(batch);
    return true;
  }

  const unsigned long main_thread_ = main_thread();
  std::shared_ptr<py::iterator> batches_;
};

py::object stream_capsule(const py::handle& field, const py::iterator& batches) {
  py::object capsule = empty_capsule<ArrowArrayStream>();
  export_batches(field_of(field), PythonBatches(batches),
                 struct_in<ArrowArrayStream>(capsule.ptr()));
  return capsule;
}

}  // namespace

void register_arrow(py::module_& m) {
  m.def("arrow_schema", &schema_capsule, py::arg("field"));
  m.def("arrow_array", &array_capsule, py::arg("values"));
  m.def("arrow_array_stream", &stream_capsule, py::arg("field"), py::arg("batches"));
}

}  // namespace fastrec
