#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/casters.h"
#include "file/row_file.h"

namespace fastrec {
namespace {

using RowChecksums = py::array_t<std::uint32_t>;
using Numbers = std::span<const std::int64_t>;

py::ssize_t n_of(Numbers numbers) { return static_cast<py::ssize_t>(numbers.size()); }

// `bounds` has two columns.
RowChecksums copy_rows_of(const RowFile& file, Numbers numbers, Numbers bounds,
                          py::array target) {
  RowChecksums checksums(n_of(numbers));
  const MutableBytes room(static_cast<std::uint8_t*>(target.mutable_data()),
                          static_cast<std::size_t>(target.nbytes()));
  std::uint32_t* const sums = checksums.mutable_data();
  const py::gil_scoped_release released;
  copy_rows(file, numbers, bounds, room, sums);
  return checksums;
}

RowChecksums sum_rows_of(const py::buffer& data, Numbers numbers, Numbers bounds) {
  const BufferView view(data);
  RowChecksums checksums(n_of(numbers));
  std::uint32_t* const sums = checksums.mutable_data();
  const py::gil_scoped_release released;
  sum_rows(view.bytes(), numbers, bounds, sums);
  return checksums;
}

// A target is None if its column is only verified.
RowChecksums copy_columns_of(const std::vector<const RowFile*>& files,
                             std::uint64_t first,
                             const std::vector<std::uint64_t>& row_bytes,
                             const std::vector<std::optional<py::array>>& targets,
                             Numbers numbers) {
  std::vector<FixedColumn> columns;
  for (std::size_t i = 0; i < files.size(); ++i) {
    void* target = targets[i] ? py::array(*targets[i]).mutable_data() : nullptr;
    columns.push_back(
        {files[i], first, row_bytes[i], static_cast<std::uint8_t*>(target)});
  }
  RowChecksums checksums(n_of(numbers));
  std::uint32_t* const sums = checksums.mutable_data();
  const py::gil_scoped_release released;
  copy_columns(columns, numbers, sums);
  return checksums;
}

}  // namespace

void register_kept(py::module_& m) {
  py::class_<RowFile>(m, "RowFile")
      .def(py::init<std::string>(), py::arg("path"))
      .def("copy", &copy_rows_of, py::arg("numbers"), py::arg("bounds"),
           py::arg("target"));
  m.def("copy_columns", &copy_columns_of, py::arg("files"), py::arg("first"),
        py::arg("row_bytes"), py::arg("targets"), py::arg("numbers"));
  m.def("row_checksums", &sum_rows_of, py::arg("data"), py::arg("numbers"),
        py::arg("bounds"));
}

}  // namespace fastrec
