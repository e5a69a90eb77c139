#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "file/file_view.h"
#include "record/examination.h"
#include "record/indexes.h"
#include "record/paths.h"
#include "record/reader.h"

namespace fastrec {
namespace {

py::bytes read_record(std::shared_ptr<FileTable> files, const Catalog& catalog,
                      std::uint64_t number) {
  const Place place = catalog.locate(number);
  FrameRuns frames;
  frames.add(place);
  RecordReader reader(files);
  Bytes payload;
  Fault fault;
  {
    const py::gil_scoped_release released;
    reader.start(frames);
    fault = reader.next(&payload);
  }
  if (fault) throw record_error(fault, describe(fault), place, *files);
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

// Calls `on_payload(Bytes)` for the verified record of each of `frames`. Throws Error
// and IoError. Needs no GIL.
template <typename OnPayload>
void read_each(const std::shared_ptr<FileTable>& files, const FrameRuns& frames,
               OnPayload&& on_payload) {
  RecordReader reader(files);
  reader.start(frames);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    Bytes payload;
    if (Fault fault = reader.next(&payload)) {
      const Place place = PlaceCursor(&frames).at(i);
      throw record_error(fault, describe(fault), place, *files);
    }
    on_payload(payload);
  }
}

// Returns the contiguous payloads of `numbers` and their offsets.
py::tuple read_records(std::shared_ptr<FileTable> files, const Catalog& catalog,
                       std::shared_ptr<BlockPool> pool, const Int64Array& numbers) {
  const FrameRuns frames = frames_of(catalog, numbers);
  GrowingArray data(pool), offsets(pool);
  std::size_t n_bytes;
  {
    const py::gil_scoped_release released;
    data.extend(0);
    offsets.append(0);
    read_each(files, frames, [&](Bytes payload) {
      std::uint8_t* target = data.extend(payload.size());
      std::copy(payload.begin(), payload.end(), target);
      offsets.append(static_cast<std::int64_t>(data.size()));
    });
    n_bytes = data.size();
  }
  const Array data_array = data.release(), offsets_array = offsets.release();
  return py::make_tuple(
      view_of(data_array, py::dtype::of<std::uint8_t>(),
              {static_cast<py::ssize_t>(n_bytes)}, owner_of(data_array.block)),
      view_of(offsets_array, py::dtype::of<std::int64_t>(),
              {static_cast<py::ssize_t>(frames.size()) + 1},
              owner_of(offsets_array.block)));
}

// Verifies the frames of `numbers` and copies frame i to into[begins[i]]. No other
// thread may access `into` meanwhile.
void read_frames(const std::shared_ptr<FileTable>& files, const Catalog& catalog,
                 const Int64Array& numbers, const Int64Array& begins,
                 py::array_t<std::uint8_t, py::array::c_style>& into) {
  if (begins.size() != numbers.size()) {
    throw py::value_error("begins must have one entry per number");
  }
  const FrameRuns frames = frames_of(catalog, numbers);
  const auto size = static_cast<std::uint64_t>(into.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    // A negative number wraps to a large one.
    const auto begin = static_cast<std::uint64_t>(begins.data()[i]);
    if (begin > size || frames.lengths[i] + kFrameBytes > size - begin) {
      throw py::index_error("`into` is too small for the frames");
    }
  }
  const std::int64_t* begin = begins.data();
  std::uint8_t* target = into.mutable_data();
  const py::gil_scoped_release released;
  read_each(files, frames, [&](Bytes payload) {
    std::copy_n(payload.data() - kHeaderBytes, payload.size() + kFrameBytes,
                target + *begin++);
  });
}

// The size of the frame of each of `numbers`.
py::array_t<std::int64_t> frame_bytes(const Catalog& catalog,
                                      const Int64Array& numbers) {
  const FrameRuns frames = frames_of(catalog, numbers);
  py::array_t<std::int64_t> n_bytes(static_cast<py::ssize_t>(frames.size()));
  std::ranges::transform(frames.lengths, n_bytes.mutable_data(), [](std::uint64_t n) {
    return static_cast<std::int64_t>(n + kFrameBytes);
  });
  return n_bytes;
}

// Copies bytes of a file to private memory as a RecordReader does, and discards them.
// Returns their number.
std::uint64_t copy_bytes(FileTable& files, std::size_t file, std::uint64_t begin,
                         std::uint64_t end) {
  if (file >= files.size())
    throw py::index_error("file must be below " + std::to_string(files.size()) +
                          ", got " + std::to_string(file));
  const py::gil_scoped_release released;
  const std::shared_ptr<const FileView> view = files.open(file);
  const std::uint64_t block_bytes = RecordReader::block_bytes(*view);
  end = std::min(end, view->size());
  Buffer buffer;
  std::uint64_t n_bytes = 0;
  while (begin < end) {
    const std::uint64_t length = std::min(block_bytes, end - begin);
    n_bytes += view->copy(begin, length, &buffer).size();
    begin += length;
  }
  return n_bytes;
}

// Verifies the records `numbers` and returns the size of their frames.
std::uint64_t verify_records(std::shared_ptr<FileTable> files, const Catalog& catalog,
                             const Int64Array& numbers) {
  const FrameRuns frames = frames_of(catalog, numbers);
  const py::gil_scoped_release released;
  std::uint64_t n_bytes = 0;
  read_each(files, frames,
            [&](Bytes payload) { n_bytes += payload.size() + kFrameBytes; });
  return n_bytes;
}

py::array_t<std::uint32_t> stored_checksums(FileTable& files, const Catalog& catalog,
                                            const Int64Array& numbers) {
  const FrameRuns frames = frames_of(catalog, numbers);
  PlaceCursor places(&frames);
  std::vector<std::uint32_t> checksums;
  {
    const py::gil_scoped_release released;
    for (std::size_t i = 0; i < frames.size(); ++i) {
      checksums.push_back(stored_payload_crc(places.at(i), &files));
    }
  }
  return array_of(checksums);
}

// [(file, record in the file, begin of its frame)] of each number.
py::list places_as_tuples(const Catalog& catalog, const Int64Array& numbers) {
  const FrameRuns frames = frames_of(catalog, numbers);
  PlaceCursor places(&frames);
  py::list tuples;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const Place place = places.at(i);
    tuples.append(py::make_tuple(place.file, place.record, place.frame.offset));
  }
  return tuples;
}

// Converts pieces from Python: (count, first, stride), or an array of record numbers.
std::vector<Piece> pieces_of(const py::iterable& pieces) {
  std::vector<Piece> result;
  for (const py::handle piece : pieces) {
    if (py::isinstance<py::tuple>(piece)) {
      const auto [count, first, stride] =
          piece.cast<std::tuple<std::uint64_t, std::uint64_t, std::int64_t>>();
      result.push_back({count, first, static_cast<std::uint64_t>(stride), nullptr});
      continue;
    }
    const auto numbers = piece.cast<Int64Array>();
    auto table = std::make_shared<const std::vector<std::uint64_t>>(
        numbers.data(), numbers.data() + numbers.size());
    result.push_back({.count = table->size(), .table = std::move(table)});
  }
  return result;
}

bool holds_frames(const std::string& path) {
  const py::gil_scoped_release released;
  const std::atomic<bool> cancelled{false};
  return FrameWalk(Recovery::kRepair, &cancelled).holds_frames({path, Io::kPread});
}

}  // namespace

FrameRuns frames_of(const Catalog& catalog, const Int64Array& numbers) {
  FrameRuns frames;
  // Numbers are not negative, so the unsigned values are equal.
  const auto* records = reinterpret_cast<const std::uint64_t*>(numbers.data());
  catalog.locate({records, static_cast<std::size_t>(numbers.size())}, &frames);
  return frames;
}

namespace {

py::object end_of(std::uint64_t end) {
  return end == SkippedSpan::kUnknownEnd ? py::object(py::none()) : py::int_(end);
}

}  // namespace

py::object skipped_span(std::uint64_t begin, std::uint64_t end, const Error& error,
                        const py::dict& fields) {
  return py::module_::import("fastrec.on_error")
      .attr("SkippedSpan")(begin, end_of(end), exception_of(error), **fields);
}

py::list to_list(std::span<const SkippedSpan> gaps) {
  py::list list;
  for (const SkippedSpan& gap : gaps) {
    list.append(skipped_span(gap.begin, gap.end, gap.error, py::dict()));
  }
  return list;
}

py::tuple to_tuple(const Findings& findings) {
  py::list list;
  for (const Finding& finding : findings.findings) {
    py::dict fields;
    if (finding.kind != Finding::Kind::kGap) fields["records"] = 1;
    if (finding.kind == Finding::Kind::kRepaired) fields["bit"] = finding.bit;
    list.append(skipped_span(finding.begin, finding.end, finding.error, fields));
  }
  return py::make_tuple(findings.n_records, list);
}

void register_records(py::module_& m) {
  m.def("recognize", &recognize_file, py::arg("path"),
        py::call_guard<py::gil_scoped_release>());
  m.def("holds_frames", &holds_frames, py::arg("path"));
  m.def(
      "is_end_proven",
      [](const std::string& path, std::uint64_t payload) {
        const py::gil_scoped_release released;
        return is_end_proven({path, Io::kPread}, payload);
      },
      py::arg("path"), py::arg("payload"));
  m.def(
      "is_remote",
      [](const std::string& path) {
        const py::gil_scoped_release released;
        return File(path).is_remote();
      },
      py::arg("path"));

  py::class_<FileTable, std::shared_ptr<FileTable>>(m, "FileTable")
      .def(py::init([](const py::bytes& paths, std::vector<Io> ios,
                       const py::bytes& names, std::uint64_t record_bytes_max,
                       std::shared_ptr<RangeRequests> requests, bool is_assumed_plain) {
             return std::make_shared<FileTable>(split_paths(paths), std::move(ios),
                                                split_paths(names), record_bytes_max,
                                                std::move(requests), is_assumed_plain);
           }),
           py::arg("paths"), py::arg("ios"), py::arg("names") = py::bytes(),
           py::arg("record_bytes_max") = kMaxPayloadBytes,
           py::arg("requests") = nullptr, py::arg("is_assumed_plain") = false)
      .def("__len__", &FileTable::size)
      .def(
          "expect",
          [](FileTable& files, const Indexes& indexes) {
            if (indexes.size() != files.size()) {
              throw py::value_error("indexes must have one element per file");
            }
            std::vector<FileIdentity> identities;
            identities.reserve(indexes.size());
            for (const Index& index : indexes) identities.push_back(index.identity());
            files.expect(std::move(identities));
          },
          py::arg("indexes"));

  py::class_<Catalog, std::shared_ptr<Catalog>>(m, "Catalog")
      .def(py::init([](std::shared_ptr<Indexes> indexes, const py::iterable& pieces) {
             return std::make_shared<Catalog>(std::move(indexes), pieces_of(pieces));
           }),
           py::arg("indexes"), py::arg("pieces") = py::tuple())
      .def("__len__", &Catalog::size)
      .def("places", &places_as_tuples, py::arg("numbers"))
      .def("frame_bytes", &frame_bytes, py::arg("numbers"));

  py::class_<Examination>(m, "Examination")
      .def(py::init([](const std::string& path, std::uint64_t piece_bytes) {
             if (piece_bytes == 0)
               throw py::value_error("piece_bytes must be positive, got 0");
             const py::gil_scoped_release released;
             return std::make_unique<Examination>(path, piece_bytes);
           }),
           py::arg("path"), py::arg("piece_bytes") = Examination::kPieceBytes)
      .def_property_readonly("n_bytes", &Examination::n_bytes)
      .def_property_readonly("n_pieces", &Examination::n_pieces)
      .def(
          "examine",
          [](Examination& examination, std::size_t piece, ScanProgress& progress) {
            if (piece >= examination.n_pieces()) {
              throw py::index_error("piece must be below n_pieces");
            }
            const py::gil_scoped_release released;
            examination.examine(piece, &progress);
          },
          py::arg("piece"), py::arg("progress"))
      .def(
          "finish",
          [](Examination& examination, ScanProgress& progress) {
            Findings findings;
            {
              const py::gil_scoped_release released;
              findings = examination.finish(&progress);
            }
            return to_tuple(findings);
          },
          py::arg("progress"));

  m.def("read_record", &read_record, py::arg("files"), py::arg("catalog"),
        py::arg("number"));
  m.def("copy_bytes", &copy_bytes, py::arg("files"), py::arg("file"), py::arg("begin"),
        py::arg("end"));
  m.def("verify_records", &verify_records, py::arg("files"), py::arg("catalog"),
        py::arg("numbers"));
  m.def("stored_checksums", &stored_checksums, py::arg("files"), py::arg("catalog"),
        py::arg("numbers"));
  m.def("read_records", &read_records, py::arg("files"), py::arg("catalog"),
        py::arg("pool"), py::arg("numbers"));
  m.def("read_frames", &read_frames, py::arg("files"), py::arg("catalog"),
        py::arg("numbers"), py::arg("begins"), py::arg("into").noconvert());
}

}  // namespace fastrec
