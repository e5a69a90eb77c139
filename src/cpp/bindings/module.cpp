#include <cerrno>
#include <exception>
#include <optional>
#include <string>

#include "base/cpu.h"
#include "base/error.h"
#include "bindings/bindings.h"
#include "crc32c/crc32c.h"
#include "file/guard.h"

namespace fastrec {
namespace {

py::object path_object(const std::string& path) {
  return py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefaultAndSize(
      path.data(), static_cast<py::ssize_t>(path.size())));
}

void raise_in_python(const Error& error) {
  const py::object value = exception_of(error);
  PyErr_SetObject(py::type::handle_of(value).ptr(), value.ptr());
}

void raise_in_python(const IoError& error) {
  const py::object path = path_object(error.path);
  errno = error.errno_value;  // selects the subclass of OSError
  PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path.ptr());
}

void translate(std::exception_ptr pending) {
  try {
    if (pending) std::rethrow_exception(pending);
  } catch (const Error& error) {
    raise_in_python(error);
  } catch (const IoError& error) {
    raise_in_python(error);
  } catch (const PythonError& error) {
    error.raise();
  }
}

std::uint32_t checksum(Bytes data, const std::optional<std::string>& name) {
  const Crc32cKernel* chosen = name ? nullptr : &crc32c_kernel();
  for (const Crc32cKernel& kernel : crc32c_kernels()) {
    if (name && *name == kernel.name) chosen = &kernel;
  }
  if (chosen == nullptr) throw py::value_error("unknown crc32c kernel '" + *name + "'");
  return without_gil([&] { return chosen->extend(0, data); });
}

}  // namespace

py::object to_text(const std::string& text) {
  return py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
      text.data(), static_cast<py::ssize_t>(text.size()), "backslashreplace"));
}

py::list to_texts(const std::vector<std::string>& texts) {
  py::list list;
  for (const std::string& text : texts) list.append(to_text(text));
  return list;
}

py::object exception_of(const Error& error) {
  const py::module_ errors = py::module_::import("fastrec.errors");
  // The classes are defined in Python, for docstrings, types and pickling.
  const py::object type = errors.attr(name_of(error_class(error.code)));
  const py::object feature =
      error.feature.empty() ? py::object(py::none()) : to_text(error.feature);
  const py::object path =
      error.path.empty() ? py::object(py::none()) : path_object(error.path);
  py::object reason = to_text(error.reason);
  if (error.code == Errc::kFeatureMissing) {
    reason = py::module_::import("fastrec.features.missing")
                 .attr("reason")(reason, feature, to_texts(error.names), error.advice);
  }
  if (const Error::Misread& misread = error.misread; !misread.record.empty()) {
    reason += py::module_::import("fastrec.features.misread")
                  .attr("advice")(py::bytes(misread.record), py::bytes(error.feature),
                                  py::tuple(py::cast(misread.shape)), misread.dtype);
  }
  return type(reason, path, error.record, error.offset, feature,
              py::arg("code") = code_name(error.code));
}

}  // namespace fastrec

// Declares PyInit__core_of_main, which initializes pybind11 at once.
PYBIND11_MODULE_PYINIT(_core_of_main, pybind11::mod_gil_not_used(),
                       pybind11::multiple_interpreters::not_supported())

// Whether this is a subinterpreter, which NumPy does not support. Python itself accepts
// the module in those that share the GIL, and in all before Python 3.12.
static bool is_subinterpreter() {
  return PyInterpreterState_Get() != PyInterpreterState_Main();
}

constexpr const char* kRefusal =
    "fastrec must be imported in the main interpreter, got a subinterpreter; use "
    "processes or threads";

// Before Python 3.12, pybind11 would deadlock in a subinterpreter. From 3.13 on, this
// runs in the main interpreter, and the module is initialized in the subinterpreter.
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  if (!is_subinterpreter()) return PyInit__core_of_main();
  PyErr_SetString(PyExc_ImportError, kRefusal);
  return nullptr;
}

PYBIND11_MODULE_EXEC(_core_of_main, m) {
  using namespace fastrec;

  if (is_subinterpreter()) throw py::import_error(kRefusal);
  (void)crc32c_kernel();     // reject a bad FASTREC_ISA at import, not during an epoch
  (void)is_guard_enabled();  // the same for FASTREC_SIGBUS_GUARD
  py::register_local_exception_translator(&translate);

  m.attr("__version__") = FASTREC_VERSION;
  m.def("crc32c", &checksum, py::arg("data"), py::arg("kernel") = py::none());
  m.def(
      "masked_crc32c", [](Bytes data) { return crc32c_mask(checksum(data, {})); },
      py::arg("data"));
  m.def("crc32c_kernels", [] {
    py::list names;
    for (const Crc32cKernel& kernel : crc32c_kernels()) names.append(kernel.name);
    return names;
  });
  m.def("crc32c_kernel", [] { return crc32c_kernel().name; });
  m.def("error_codes", [] {  // the name of the exception class, by code
    py::dict codes;
    for (std::size_t i = 1; i < kErrcCount; ++i) {
      const auto errc = static_cast<Errc>(i);
      codes[code_name(errc)] = name_of(error_class(errc));
    }
    return codes;
  });
  m.def("isas", [] {  // valid values of FASTREC_ISA on this CPU, best first
    py::list names;
    for (const Isa isa : supported_isas()) names.append(name_of(isa));
    return names;
  });

  register_atomic_reference(m);
  register_held_lock(m);
  register_slab(m);
  register_arrow(m);
  register_indexes(m);
  register_records(m);
  register_rows(m);
  register_features(m);
  register_streams(m);
  register_message(m);
  register_survey(m);
  register_order(m);
  register_ranges(m);
  register_kept(m);
  register_loader(m);
  register_writer(m);
}
