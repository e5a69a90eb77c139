#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "batch/row_table.h"
#include "batch/slab.h"
#include "bindings/bindings.h"
#include "bindings/casters.h"
#include "file/row_file.h"

namespace fastrec {
namespace {

using RowChecksums = py::array_t<std::uint32_t>;

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

// Reads columns of a table of rows.
class RowColumns {
 public:
  // A name, the offset in a row, the dtype, and the shape in a row.
  using Given =
      std::tuple<py::object, std::size_t, py::dtype, std::vector<py::ssize_t>>;

  RowColumns(std::shared_ptr<const RowFile> file, std::uint64_t first,
             std::size_t row_bytes, const std::vector<Given>& columns)
      : file_(std::move(file)), table_{file_.get(), first, row_bytes} {
    for (const auto& [name, offset, dtype, shape] : columns) {
      fields_.push_back({offset, static_cast<std::size_t>(std::accumulate(
                                     shape.begin(), shape.end(), dtype.itemsize(),
                                     std::multiplies<>()))});
      const RowField& field = fields_.back();
      if (offset < RowTable::kChecksumBytes || offset > row_bytes ||
          field.size > row_bytes - offset) {
        throw py::value_error("a column must be in the row, after the checksum");
      }
      maker_.add(ColumnSpec(), name, dtype, shape, false);
    }
  }

  // Returns the rows that match their checksums by column name, and which these are.
  py::tuple gather(Numbers numbers, BlockPool& pool) const {
    py::array_t<bool> is_kept(n_of(numbers));
    bool* const kept = is_kept.mutable_data();
    Batch batch =
        without_gil([&] { return gather_rows(table_, numbers, fields_, &pool, kept); });
    return py::make_tuple(maker_.arrays(&batch), std::move(is_kept));
  }

 private:
  std::shared_ptr<const RowFile> file_;
  RowTable table_;
  std::vector<RowField> fields_;
  ArrayMaker maker_{py::none()};
};

}  // namespace

void register_kept(py::module_& m) {
  py::class_<RowFile, std::shared_ptr<RowFile>>(m, "RowFile")
      .def(py::init<std::string>(), py::arg("path"))
      .def("copy", &copy_rows_of, py::arg("numbers"), py::arg("bounds"),
           py::arg("target"));
  py::class_<RowColumns>(m, "RowColumns")
      .def(py::init<std::shared_ptr<const RowFile>, std::uint64_t, std::size_t,
                    const std::vector<RowColumns::Given>&>(),
           py::arg("file"), py::arg("first"), py::arg("row_bytes"), py::arg("columns"))
      .def("gather", &RowColumns::gather, py::arg("numbers"), py::arg("pool"));
  m.def("row_checksums", &sum_rows_of, py::arg("data"), py::arg("numbers"),
        py::arg("bounds"));
}

}  // namespace fastrec
