#include "record/indexes.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "file/file_view.h"
#include "record/index_file.h"
#include "record/paths.h"

namespace fastrec {
namespace {

using SharedIndexes = std::shared_ptr<Indexes>;

SharedIndexes shared(std::vector<Index> files) {
  return std::make_shared<Indexes>(std::move(files));
}

Int64Array of_files(const Indexes& indexes, std::uint64_t (Index::*number)() const) {
  Int64Array numbers(static_cast<py::ssize_t>(indexes.size()));
  std::ranges::transform(indexes, numbers.mutable_data(), number);
  return numbers;
}

SharedIndexes build(const FileTable& files, Numbers numbers, unsigned n_threads,
                    ScanProgress& progress, Recovery recovery) {
  return shared(build_indexes(files, numbers, n_threads, &progress, recovery));
}

// `parts` are the numbers of files, and their indexes.
SharedIndexes merge(std::size_t n_files,
                    const std::vector<std::pair<Int64Array, SharedIndexes>>& parts) {
  std::vector<PartialIndexes> spans;
  for (const auto& [numbers, indexes] : parts) {
    const auto n = static_cast<std::size_t>(numbers.size());
    spans.push_back({{numbers.data(), n}, indexes.get()});
  }
  return shared(merged(n_files, spans));
}

// Returns the numbers of the files that `file` has the index of, and their indexes. See
// IndexQuery.
std::pair<Int64Array, SharedIndexes> find(const IndexFile& file,
                                          const std::string& joined_names,
                                          Numbers numbers,
                                          const std::vector<FileIdentity>& versions,
                                          Bytes contents, bool needs_crcs,
                                          bool ignores_times, FileTable* probed) {
  FoundIndexes found = without_gil([&] {
    const std::vector<std::string> names = split_paths(joined_names);
    return file.find({names, versions, contents, needs_crcs, ignores_times, probed},
                     numbers);
  });
  return {array_of(found.files), shared(std::move(found.indexes))};
}

}  // namespace

void register_indexes(py::module_& m) {
  using WithoutGil = py::call_guard<py::gil_scoped_release>;
  m.def(
      "versions_of",
      [](const std::string& paths, std::size_t n_threads) {
        return versions_of(split_paths(paths), n_threads);
      },
      py::arg("paths"), py::arg("n_threads"), WithoutGil());
  m.def(
      "recognize_files",
      [](const std::string& paths, std::size_t n_threads) {
        return array_of(without_gil([&] {
                 return may_be_compressed(split_paths(paths), n_threads);
               }))
            .view("bool");
      },
      py::arg("paths"), py::arg("n_threads"));

  py::class_<ScanProgress>(m, "ScanProgress")
      .def(py::init<>())
      .def_property_readonly(
          "n_bytes",
          [](const ScanProgress& progress) { return progress.n_bytes.load(); })
      .def("cancel", [](ScanProgress& progress) { progress.cancelled.store(true); });

  py::class_<Index>(m, "Index")
      .def_static("from_offsets", &Index::from_offsets, py::arg("offsets"),
                  py::arg("version"), py::arg("path"))
      .def_static(
          "of_stream",
          [](std::span<const std::uint64_t> offsets,
             std::span<const std::uint32_t> payload_crcs, FileIdentity version,
             unsigned content) {
            if (offsets.size() != payload_crcs.size() + 1) {
              throw py::value_error("offsets must have one more than payload_crcs");
            }
            return Index::of_stream(offsets, payload_crcs, {}, version,
                                    content_of_code(content));
          },
          py::arg("offsets"), py::arg("payload_crcs"), py::arg("version"),
          py::arg("content"))
      .def("__len__", &Index::size)
      .def_property_readonly("n_bytes", &Index::n_bytes)
      .def_property_readonly("version", &Index::identity)
      .def_property_readonly("gaps", &Index::gaps)
      .def_property_readonly(
          "offsets", [](const Index& index) { return array_of(index.offsets()); });

  py::class_<Indexes, SharedIndexes>(m, "Indexes")
      .def(py::init<std::vector<Index>>(), py::arg("indexes"))
      .def_static("build", &build, WithoutGil(), py::arg("files"), py::arg("numbers"),
                  py::arg("n_threads"), py::arg("progress"),
                  py::arg("recovery") = Recovery::kNone)
      .def_static("merged", &merge, py::arg("n_files"), py::arg("parts"))
      .def_static(
          "joined",
          [](const std::vector<SharedIndexes>& parts) { return shared(joined(parts)); },
          py::arg("parts"))
      .def("__len__", &Indexes::size)
      .def("__iter__",
           [](const py::object& self) {
             return py::reinterpret_steal<py::object>(PySeqIter_New(self.ptr()));
           })
      .def(
          "__getitem__",
          [](const Indexes& indexes, std::size_t file) {
            if (file >= indexes.size()) throw py::index_error();  // ends an iteration
            return indexes[file];
          },
          py::arg("file"))
      .def_property_readonly("stale", &Indexes::stale)
      .def(
          "is_stale",
          [](const Indexes& indexes, std::size_t file, FileTable& files) {
            if (file >= indexes.size()) throw py::index_error("file is out of range");
            const py::gil_scoped_release released;
            return indexes[file].is_stale(*files.open(file));
          },
          py::arg("file"), py::arg("files"))
      .def_property_readonly("n_records", &Indexes::n_records)
      .def_property_readonly(
          "counts",
          [](const Indexes& indexes) { return of_files(indexes, &Index::size); })
      .def_property_readonly(
          "n_bytes",
          [](const Indexes& indexes) { return of_files(indexes, &Index::n_bytes); })
      .def_property_readonly("has_gaps", &Indexes::has_gaps);

  py::class_<IndexFile>(m, "IndexFile")
      .def_static("load", &IndexFile::load, py::arg("path"), WithoutGil())
      .def_static("of", py::overload_cast<Bytes>(&IndexFile::of), py::arg("content"),
                  WithoutGil())
      .def("__len__", &IndexFile::size)
      .def("find", &find, py::arg("names"), py::arg("numbers"), py::arg("versions"),
           py::arg("contents"), py::arg("needs_crcs") = false,
           py::arg("ignores_times") = false, py::arg("probed").none(true) = nullptr)
      .def(
          "contents",
          [](const IndexFile& file, const std::string& names) {
            return array_of(file.contents(split_paths(names)));
          },
          py::arg("names"));

  m.def(
      "save_indexes",
      [](const std::string& path, const std::string& names, const Indexes& indexes,
         const std::vector<const IndexFile*>& others,
         const std::optional<std::string>& directory) {
        save_indexes(path, split_paths(names), indexes, others, directory);
      },
      WithoutGil(), py::arg("path"), py::arg("names"), py::arg("indexes"),
      py::arg("others"), py::arg("directory").none(true));
}

}  // namespace fastrec
