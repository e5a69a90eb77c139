#include "record/indexes.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/in_threads.h"
#include "bindings/bindings.h"
#include "file/file_view.h"
#include "record/index_file.h"

namespace fastrec {
namespace {

constexpr std::array kContents = {Content::kTfrecord, Content::kGzip, Content::kZlib};

// (n, 2): the size and the modification time of each file.
using Versions = py::array_t<std::int64_t, py::array::c_style>;
using Codes = py::array_t<std::uint8_t, py::array::c_style>;
using Offsets = py::array_t<std::uint64_t, py::array::c_style>;
using Checksums = py::array_t<std::uint32_t, py::array::c_style>;
using SharedIndexes = std::shared_ptr<Indexes>;

template <typename T>
std::span<const T> span_of(const py::array_t<T, py::array::c_style>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

std::uint8_t code_of(Content content) {
  return static_cast<std::uint8_t>(std::ranges::find(kContents, content) -
                                   kContents.begin());
}

// Makes an array of `of_file(index)` for each index.
template <typename T, typename OfFile>
py::array_t<T> array_of_files(const Indexes& indexes, OfFile&& of_file) {
  py::array_t<T> values(static_cast<py::ssize_t>(indexes.size()));
  std::ranges::transform(indexes, values.mutable_data(), [&](const Index& index) {
    return static_cast<T>(of_file(index));
  });
  return values;
}

py::array_t<std::uint64_t> offsets_of(const Index& index) {
  py::array_t<std::uint64_t> offsets(static_cast<py::ssize_t>(index.size()) + 1);
  const std::vector<std::uint64_t> unpacked = index.offsets();
  std::ranges::copy(unpacked, offsets.mutable_data());
  return offsets;
}

// Calls `of_file(i)` for each of `n` files in several threads, because a file server may
// be slow to answer. Throws the first exception in the order of the files.
template <typename OfFile>
void for_each_file(std::size_t n, std::size_t n_threads, OfFile&& of_file) {
  constexpr std::size_t kAtOnce = 64;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t n_good = n;  // the files before the first that failed
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t begin; (begin = next.fetch_add(kAtOnce)) < n;) {
      for (std::size_t i = begin; i < std::min(n, begin + kAtOnce); ++i) {
        try {
          of_file(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (i < n_good) {
            n_good = i;
            failure = std::current_exception();
          }
          return;
        }
      }
    }
  };
  in_threads(std::clamp<std::size_t>(n / kAtOnce, 1, n_threads),
             [&](std::size_t) { work(); });
  if (failure) std::rethrow_exception(failure);
}

Versions versions_of(const std::string& joined, std::size_t n_threads) {
  const std::vector<std::string> paths = split_paths(joined);
  Versions versions({static_cast<py::ssize_t>(paths.size()), py::ssize_t{2}});
  std::int64_t* values = versions.mutable_data();
  const py::gil_scoped_release released;
  for_each_file(paths.size(), n_threads, [&](std::size_t i) {
    std::optional<FileState> state = state_at(paths[i]);
    if (!state) state = File(paths[i]).state();  // throws the reason
    values[2 * i] = static_cast<std::int64_t>(state->identity.size);
    values[2 * i + 1] = state->identity.mtime_ns;
  });
  return versions;
}

// Whether each file may be compressed, by its first bytes.
py::array_t<bool> recognize_files(const std::string& joined, std::size_t n_threads) {
  const std::vector<std::string> paths = split_paths(joined);
  py::array_t<bool> may_be_compressed(static_cast<py::ssize_t>(paths.size()));
  bool* values = may_be_compressed.mutable_data();
  const py::gil_scoped_release released;
  for_each_file(paths.size(), n_threads, [&](std::size_t i) {
    std::uint8_t beginning[kRecognizeBytes];
    const std::size_t n = File(paths[i]).read_at(0, beginning);
    const Content content = recognize({beginning, n});
    values[i] = content == Content::kGzip || content == Content::kZlib;
  });
  return may_be_compressed;
}

// Builds the index of each file; see Index.build.
SharedIndexes build(const std::string& joined_paths, Io io, unsigned n_threads,
                    ScanProgress& progress, const std::string& joined_names,
                    Recovery recovery, bool is_assumed_plain) {
  const py::gil_scoped_release released;
  std::vector<std::string> paths = split_paths(joined_paths);
  std::vector<std::string> names = split_paths(joined_names);
  std::vector<Index> built;
  built.reserve(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const FileView view(std::move(paths[i]), io,
                        names.empty() ? std::string() : std::move(names[i]),
                        FileView::kSmallBytes);
    if (is_assumed_plain) check_plain(view);
    built.push_back(Index::build(view, n_threads, &progress, recovery));
  }
  return std::make_shared<Indexes>(std::move(built));
}

// Builds the index of each of these files of a table.
SharedIndexes build_in(FileTable& files, const Int64Array& numbers, unsigned n_threads,
                       ScanProgress& progress, Recovery recovery) {
  std::vector<Index> built;
  for (const std::int64_t number : span_of(numbers)) {
    if (static_cast<std::uint64_t>(number) >= files.size()) {
      throw py::index_error("a number is out of range");
    }
  }
  const py::gil_scoped_release released;
  for (const std::int64_t number : span_of(numbers)) {
    const auto view = files.open(static_cast<std::size_t>(number));
    if (files.is_assumed_plain()) check_plain(*view);
    built.push_back(Index::build(*view, n_threads, &progress, recovery));
  }
  return std::make_shared<Indexes>(std::move(built));
}

// Makes the indexes of n files from parts: pairs of the numbers of files, and their
// indexes.
SharedIndexes merged(std::size_t n_files,
                     const std::vector<std::pair<Int64Array, SharedIndexes>>& parts) {
  std::vector<const Index*> of_files(n_files);
  for (const auto& [numbers, indexes] : parts) {
    const std::span<const std::int64_t> files = span_of(numbers);
    if (files.size() != indexes->size()) {
      throw py::value_error("a part must have one number per index");
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      of_files.at(static_cast<std::size_t>(files[i])) = &(*indexes)[i];
    }
  }
  std::vector<Index> files;
  files.reserve(n_files);
  for (const Index* index : of_files) {
    if (index == nullptr) throw py::value_error("a file has no index");
    files.push_back(*index);
  }
  return std::make_shared<Indexes>(std::move(files));
}

SharedIndexes joined(const std::vector<SharedIndexes>& parts) {
  std::vector<Index> files;
  for (const SharedIndexes& part : parts) {
    files.insert(files.end(), part->begin(), part->end());
  }
  return std::make_shared<Indexes>(std::move(files));
}

// The code of a content that is not known, or that does not matter.
constexpr std::uint8_t kAnyContent = 255;

// Returns the numbers of the files among `numbers` that `file` has the index of, and
// their indexes. The entry must have the same content and version; with
// `ignores_times`, the same size. With `probed`, a table of the files, sampled frames
// must be where the entry says.
std::pair<Int64Array, SharedIndexes> find(const IndexFile& file,
                                          const std::string& joined_names,
                                          const Int64Array& numbers,
                                          const Versions& versions,
                                          const Codes& contents, bool needs_crcs,
                                          bool ignores_times, FileTable* probed) {
  const std::size_t n_files = static_cast<std::size_t>(contents.size());
  if (static_cast<std::size_t>(versions.size()) != 2 * n_files) {
    throw py::value_error("versions must have one row per file");
  }
  const std::span<const std::int64_t> wanted = span_of(numbers);
  std::vector<std::int64_t> found;
  std::vector<Index> indexes;
  {
    const py::gil_scoped_release released;
    const std::vector<std::string> names = split_paths(joined_names);
    if (names.size() != n_files) throw py::value_error("names must have one per file");
    std::size_t hint = 0;
    for (const std::int64_t number : wanted) {
      const auto i = static_cast<std::size_t>(number);
      if (i >= n_files) throw py::index_error("a number is out of range");
      const std::optional<std::size_t> entry = file.find(names[i], hint);
      if (!entry) continue;
      hint = *entry + 1;
      const FileIdentity identity{static_cast<std::uint64_t>(versions.data()[2 * i]),
                                  versions.data()[2 * i + 1]};
      const FileIdentity known = file.identity(*entry);
      if (known.size != identity.size) continue;
      if (!ignores_times && known != identity) continue;
      std::optional<Index> index = file.index(*entry);
      const std::uint8_t content = contents.data()[i];
      if (!index) continue;
      if (content != kAnyContent && content != code_of(index->content())) continue;
      if (needs_crcs && !index->has_payload_crcs()) continue;
      if (probed != nullptr && !index->is_plausible(*probed->open(i))) continue;
      found.push_back(number);
      indexes.push_back(index->with_mtime(identity.mtime_ns));
    }
  }
  return {Int64Array(static_cast<py::ssize_t>(found.size()), found.data()),
          std::make_shared<Indexes>(std::move(indexes))};
}

// Returns the content of each file by its name: or kAnyContent.
Codes contents_by_name(const IndexFile& file, const std::string& joined_names) {
  const std::vector<std::string> names = split_paths(joined_names);
  Codes codes(static_cast<py::ssize_t>(names.size()));
  std::uint8_t* code = codes.mutable_data();
  std::size_t hint = 0;
  for (const std::string& name : names) {
    const std::optional<std::size_t> entry = file.find(name, hint);
    if (entry) hint = *entry + 1;
    *code++ = entry ? code_of(file.content(*entry)) : kAnyContent;
  }
  return codes;
}

// Writes the indexes of `names`, and those of other names that are in `others`. With a
// directory, entries of files that do not exist there are left out.
void save(const std::string& path, const std::string& joined_names,
          const Indexes& indexes, const std::vector<const IndexFile*>& others,
          const std::optional<std::string>& directory) {
  const py::gil_scoped_release released;
  const std::vector<std::string> names = split_paths(joined_names);
  if (names.size() != indexes.size()) {
    throw py::value_error("names must have one per index");
  }
  std::vector<NamedIndex> named;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (indexes[i].gaps().empty()) named.push_back({names[i], &indexes[i]});
  }
  std::vector<std::string_view> known(names.begin(), names.end());
  std::ranges::sort(known);
  std::vector<std::unique_ptr<const Index>> kept;
  for (const IndexFile* other : others) {
    for (std::size_t i = 0; i < other->size(); ++i) {
      const std::string_view name = other->name(i);
      if (std::ranges::binary_search(known, name)) continue;
      if (directory && !state_at(*directory + "/" + std::string(name))) continue;
      std::optional<Index> index = other->index(i);
      if (!index) continue;
      kept.push_back(std::make_unique<const Index>(std::move(*index)));
      named.push_back({name, kept.back().get()});
    }
  }
  save_index_file(path, named);
}

}  // namespace

std::vector<std::string> split_paths(std::string_view joined) {
  std::vector<std::string> paths;
  if (joined.empty()) return paths;
  paths.reserve(static_cast<std::size_t>(std::ranges::count(joined, '\0')) + 1);
  for (std::size_t begin = 0; begin <= joined.size();) {
    const std::size_t end = std::min(joined.find('\0', begin), joined.size());
    paths.emplace_back(joined.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

Content content_of_code(unsigned code) {
  if (code >= kContents.size()) throw py::value_error("content must be 0, 1 or 2");
  return kContents[code];
}

void register_indexes(py::module_& m) {
  m.def("versions_of", &versions_of, py::arg("paths"), py::arg("n_threads"));
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
      .def_property_readonly("offsets", &offsets_of)
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
      .def_static("build", &build, py::arg("paths"), py::arg("io"),
                  py::arg("n_threads"), py::arg("progress"), py::arg("names") = "",
                  py::arg("recovery") = Recovery::kNone,
                  py::arg("is_assumed_plain") = false)
      .def_static("build_in", &build_in, py::arg("files"), py::arg("numbers"),
                  py::arg("n_threads"), py::arg("progress"),
                  py::arg("recovery") = Recovery::kNone)
      .def_static("merged", &merged, py::arg("n_files"), py::arg("parts"))
      .def_static("joined", &joined, py::arg("parts"))
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
      .def_property_readonly("counts",
                             [](const Indexes& indexes) {
                               return array_of_files<std::int64_t>(
                                   indexes,
                                   [](const Index& index) { return index.size(); });
                             })
      .def_property_readonly("n_bytes",
                             [](const Indexes& indexes) {
                               return array_of_files<std::int64_t>(
                                   indexes,
                                   [](const Index& index) { return index.n_bytes(); });
                             })
      .def_property_readonly("has_gaps", [](const Indexes& indexes) {
        return std::ranges::any_of(
            indexes, [](const Index& index) { return !index.gaps().empty(); });
      });

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
      .def("contents", &contents_by_name, py::arg("names"));

  m.def("save_indexes", &save, py::arg("path"), py::arg("names"), py::arg("indexes"),
        py::arg("others"), py::arg("directory").none(true));
}

}  // namespace fastrec
