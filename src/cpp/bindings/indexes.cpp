#include "record/indexes.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
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

// (n, 2): the size and the modification time of each file.
using Versions = py::array_t<std::int64_t, py::array::c_style>;
using Codes = py::array_t<std::uint8_t, py::array::c_style>;
using Offsets = py::array_t<std::uint64_t, py::array::c_style>;
using Checksums = py::array_t<std::uint32_t, py::array::c_style>;
using SharedIndexes = std::shared_ptr<Indexes>;

SharedIndexes shared(std::vector<Index> files) {
  return std::make_shared<Indexes>(std::move(files));
}

Int64Array of_files(const Indexes& indexes, std::uint64_t (Index::*number)() const) {
  Int64Array numbers(static_cast<py::ssize_t>(indexes.size()));
  std::ranges::transform(indexes, numbers.mutable_data(), number);
  return numbers;
}

// A row of Versions.
static_assert(sizeof(FileIdentity) == 2 * sizeof(std::int64_t));

Versions versions_array(const std::string& joined, std::size_t n_threads) {
  std::vector<FileIdentity> versions;
  {
    const py::gil_scoped_release released;
    versions = versions_of(split_paths(joined), n_threads);
  }
  Versions array({static_cast<py::ssize_t>(versions.size()), py::ssize_t{2}});
  std::memcpy(array.mutable_data(), versions.data(),
              versions.size() * sizeof(FileIdentity));
  return array;
}

py::array recognize_files(const std::string& joined, std::size_t n_threads) {
  std::vector<std::uint8_t> flags;
  {
    const py::gil_scoped_release released;
    flags = may_be_compressed(split_paths(joined), n_threads);
  }
  return array_of(flags).view("bool");
}

SharedIndexes build(const std::string& paths, Io io, unsigned n_threads,
                    ScanProgress& progress, const std::string& names, Recovery recovery,
                    bool is_assumed_plain) {
  return shared(build_indexes(split_paths(paths), split_paths(names), io,
                              {n_threads, &progress, recovery}, is_assumed_plain));
}

SharedIndexes build_in(FileTable& files, const Int64Array& numbers, unsigned n_threads,
                       ScanProgress& progress, Recovery recovery) {
  return shared(
      build_indexes(&files, span_of(numbers), {n_threads, &progress, recovery}));
}

// `parts` are the numbers of files, and their indexes.
SharedIndexes merge(std::size_t n_files,
                    const std::vector<std::pair<Int64Array, SharedIndexes>>& parts) {
  std::vector<IndexesOf> spans;
  for (const auto& [numbers, indexes] : parts) {
    spans.push_back({span_of(numbers), indexes.get()});
  }
  return shared(merged(n_files, spans));
}

// Returns the numbers of the files that `file` has the index of, and their indexes. See
// IndexQuery.
std::pair<Int64Array, SharedIndexes> find(const IndexFile& file,
                                          const std::string& joined_names,
                                          const Int64Array& numbers,
                                          const Versions& versions,
                                          const Codes& contents, bool needs_crcs,
                                          bool ignores_times, FileTable* probed) {
  FoundIndexes found;
  {
    const py::gil_scoped_release released;
    const std::vector<std::string> names = split_paths(joined_names);
    std::vector<FileIdentity> identities(static_cast<std::size_t>(versions.size()) / 2);
    std::memcpy(static_cast<void*>(identities.data()), versions.data(),
                identities.size() * sizeof(FileIdentity));
    found = file.find(
        {names, identities, span_of(contents), needs_crcs, ignores_times, probed},
        span_of(numbers));
  }
  return {array_of(found.files), shared(std::move(found.indexes))};
}

}  // namespace

void register_indexes(py::module_& m) {
  m.def("versions_of", &versions_array, py::arg("paths"), py::arg("n_threads"));
  m.def("recognize_files", &recognize_files, py::arg("paths"), py::arg("n_threads"));

  py::class_<ScanProgress>(m, "ScanProgress")
      .def(py::init<>())
      .def_property_readonly(
          "n_bytes",
          [](const ScanProgress& progress) { return progress.n_bytes.load(); })
      .def("cancel", [](ScanProgress& progress) { progress.cancelled.store(true); });

  py::class_<Index>(m, "Index")
      .def_static(
          "from_offsets",
          [](const Offsets& offsets, std::uint64_t size, std::int64_t mtime_ns,
             const std::string& path) {
            return Index::from_offsets(span_of(offsets), {size, mtime_ns}, path);
          },
          py::arg("offsets"), py::arg("size"), py::arg("mtime_ns"), py::arg("path"))
      .def_static(
          "of_stream",
          [](const Offsets& offsets, const Checksums& payload_crcs, std::uint64_t size,
             std::int64_t mtime_ns, unsigned content) {
            if (offsets.size() != payload_crcs.size() + 1) {
              throw py::value_error("offsets must have one more than payload_crcs");
            }
            return Index::of_stream(span_of(offsets), span_of(payload_crcs), {},
                                    {size, mtime_ns}, content_of_code(content));
          },
          py::arg("offsets"), py::arg("payload_crcs"), py::arg("size"),
          py::arg("mtime_ns"), py::arg("content"))
      .def("__len__", &Index::size)
      .def_property_readonly("n_bytes", &Index::n_bytes)
      .def_property_readonly("version",
                             [](const Index& index) {
                               return py::make_tuple(index.identity().size,
                                                     index.identity().mtime_ns);
                             })
      .def_property_readonly("gaps",
                             [](const Index& index) { return to_list(index.gaps()); })
      .def_property_readonly(
          "offsets", [](const Index& index) { return array_of(index.offsets()); })
      .def(
          "offset",
          [](const Index& index, std::uint64_t record) {
            if (record > index.size()) throw py::index_error("record is out of range");
            return index.offset(record);
          },
          py::arg("record"))
      .def(
          "payload_crc",
          [](const Index& index, std::uint64_t record) {
            if (record >= index.size() || !index.has_payload_crcs()) {
              throw py::index_error("the index has no checksum of this record");
            }
            return index.payload_crc(record);
          },
          py::arg("record"));

  py::class_<Indexes, SharedIndexes>(m, "Indexes")
      .def(py::init([](const std::vector<const Index*>& indexes) {
             std::vector<Index> files;
             files.reserve(indexes.size());
             for (const Index* index : indexes) files.push_back(*index);
             return std::make_shared<Indexes>(std::move(files));
           }),
           py::arg("indexes"))
      .def_static("build", &build, py::call_guard<py::gil_scoped_release>(),
                  py::arg("paths"), py::arg("io"), py::arg("n_threads"),
                  py::arg("progress"), py::arg("names") = "",
                  py::arg("recovery") = Recovery::kNone,
                  py::arg("is_assumed_plain") = false)
      .def_static("build_in", &build_in, py::call_guard<py::gil_scoped_release>(),
                  py::arg("files"), py::arg("numbers"), py::arg("n_threads"),
                  py::arg("progress"), py::arg("recovery") = Recovery::kNone)
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
      .def_static(
          "load",
          [](const std::string& path) {
            const py::gil_scoped_release released;
            return IndexFile::load(path);
          },
          py::arg("path"))
      .def_static(
          "of",
          [](const std::string& content) {
            const auto words = std::make_shared<std::vector<std::uint64_t>>(
                content.size() / sizeof(std::uint64_t) + 1);
            auto* bytes = reinterpret_cast<std::uint8_t*>(words->data());
            std::ranges::copy(content, bytes);
            return IndexFile::of({words, {bytes, content.size()}});
          },
          py::arg("content"))
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
      py::call_guard<py::gil_scoped_release>(), py::arg("path"), py::arg("names"),
      py::arg("indexes"), py::arg("others"), py::arg("directory").none(true));
}

}  // namespace fastrec
