#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bindings/bindings.h"

namespace fastrec {
namespace {

// A writable buffer from Python code, and its object.
class PythonMemory {
 public:
  explicit PythonMemory(py::object object) : object_(std::move(object)) {
    if (PyObject_GetBuffer(object_.ptr(), &view_, PyBUF_WRITABLE) != 0) {
      throw py::error_already_set();
    }
  }
  ~PythonMemory() { PyBuffer_Release(&view_); }
  PythonMemory(const PythonMemory&) = delete;
  PythonMemory& operator=(const PythonMemory&) = delete;

  std::uint8_t* data() const { return static_cast<std::uint8_t*>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }
  const py::object& object() const { return object_; }

 private:
  py::object object_;
  Py_buffer view_;
};

// An allocator that calls `allocate(n_bytes)`, which returns a writable buffer.
Allocator allocator_of(py::function allocate) {
  auto owned = owned_by_python(std::make_unique<py::function>(std::move(allocate)));
  return [allocate = std::move(owned)](std::size_t size) -> ForeignMemory {
    const auto memory =
        owned_by_python(std::make_unique<PythonMemory>((*allocate)(size)));
    if (memory->size() < size ||
        reinterpret_cast<std::uintptr_t>(memory->data()) % Block::kAlignment != 0) {
      throw py::value_error("allocate(" + std::to_string(size) +
                            ") must return at least " + std::to_string(size) +
                            " bytes, aligned to " + std::to_string(Block::kAlignment));
    }
    return {memory->data(), memory};
  };
}

std::shared_ptr<BlockPool> make_pool(std::size_t idle_bytes_max,
                                     const py::object& allocate, bool recycles) {
  if (allocate.is_none()) return std::make_shared<BlockPool>(idle_bytes_max);
  return std::make_shared<BlockPool>(
      idle_bytes_max, allocator_of(allocate.cast<py::function>()), recycles);
}

py::object block_memory(const Block& block) {
  if (!block.owner()) return py::none();
  return static_cast<const PythonMemory*>(block.owner().get())->object();
}

}  // namespace

void register_slab(py::module_& m) {
  py::class_<Block, std::shared_ptr<Block>>(m, "Block", py::buffer_protocol())
      .def_buffer([](Block& block) {
        return py::buffer_info(block.data(), static_cast<py::ssize_t>(block.size()));
      })
      .def_property_readonly("address",
                             [](const Block& block) {
                               return reinterpret_cast<std::uintptr_t>(block.data());
                             })
      .def_property_readonly("size", &Block::size)
      .def_property_readonly("memory", &block_memory);

  py::class_<BlockPool, std::shared_ptr<BlockPool>>(m, "BlockPool")
      .def(py::init(&make_pool), py::arg("idle_bytes_max"),
           py::arg("allocate") = py::none(), py::arg("recycles") = true)
      .def("take", &BlockPool::take, py::arg("n_bytes"))
      .def_property_readonly("n_idle",
                             [](const BlockPool& pool) { return pool.stats().n_idle; });
}

}  // namespace fastrec
