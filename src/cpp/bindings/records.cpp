#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "record/indexes.h"
#include "record/paths.h"
#include "record/reader.h"

namespace fastrec {
namespace {

py::bytes read_record(std::shared_ptr<FileTable> files, const Catalog& catalog,
                      std::uint64_t number) {
  FrameRuns frames;
  frames.add(catalog.locate(number));
  RecordReader reader(std::move(files));
  const Bytes payload = without_gil([&] {
    reader.start(frames);
    return reader.next();
  });
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

// Returns the contiguous payloads of `numbers` and their offsets.
py::tuple read_records(std::shared_ptr<FileTable> files, const Catalog& catalog,
                       std::shared_ptr<BlockPool> pool, Numbers numbers) {
  GrowingArray data(pool), offsets(pool);
  const std::size_t n_bytes = without_gil([&] {
    data.extend(0);
    offsets.append(0);
    read_each(std::move(files), frames_of(catalog, numbers), [&](Bytes payload) {
      std::ranges::copy(payload, data.extend(payload.size()));
      offsets.append(static_cast<std::int64_t>(data.size()));
    });
    return data.size();
  });
  const Array data_array = data.release(), offsets_array = offsets.release();
  return py::make_tuple(
      view_of(data_array, py::dtype::of<std::uint8_t>(),
              {static_cast<py::ssize_t>(n_bytes)}, owner_of(data_array.block)),
      view_of(offsets_array, py::dtype::of<std::int64_t>(),
              {static_cast<py::ssize_t>(numbers.size()) + 1},
              owner_of(offsets_array.block)));
}

// Verifies the frames of `numbers` and copies frame i to into[begins[i]]. No other
// thread may access `into` meanwhile.
void read_frames(std::shared_ptr<FileTable> files, const Catalog& catalog,
                 Numbers numbers, Numbers begins,
                 py::array_t<std::uint8_t, py::array::c_style>& into) {
  const MutableBytes target(into.mutable_data(), static_cast<std::size_t>(into.size()));
  const py::gil_scoped_release released;
  copy_frames(std::move(files), frames_of(catalog, numbers), begins, target);
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

}  // namespace

FrameRuns frames_of(const Catalog& catalog, Numbers numbers) {
  FrameRuns frames;
  // Numbers are not negative, so the unsigned values are equal.
  const auto* records = reinterpret_cast<const std::uint64_t*>(numbers.data());
  catalog.locate({records, numbers.size()}, &frames);
  return frames;
}

Int64Array places_array(const FrameRuns& frames) {
  Int64Array array({static_cast<py::ssize_t>(frames.size()), py::ssize_t{4}});
  std::int64_t* out = array.mutable_data();
  PlaceCursor places(&frames);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const Place place = places.at(i);
    *out++ = static_cast<std::int64_t>(place.file);
    *out++ = static_cast<std::int64_t>(place.record);
    *out++ = static_cast<std::int64_t>(place.frame.offset);
    *out++ = static_cast<std::int64_t>(place.frame.end());
  }
  return array;
}

namespace {

// A fastrec.on_error.SkippedSpan of bytes [begin, end); `fields` are keyword arguments.
py::object skipped_span(std::uint64_t begin, std::uint64_t end, const Error& error,
                        const py::dict& fields) {
  std::optional<std::uint64_t> known_end;
  if (end != SkippedSpan::kUnknownEnd) known_end = end;
  return py::module_::import("fastrec.on_error")
      .attr("SkippedSpan")(begin, known_end, exception_of(error), **fields);
}

}  // namespace

py::object to_python(const SkippedSpan& gap) {
  return skipped_span(gap.begin, gap.end, gap.error, py::dict());
}

py::object to_python(const Finding& finding) {
  py::dict fields;
  if (finding.kind != Finding::Kind::kGap) fields["records"] = 1;
  if (finding.kind == Finding::Kind::kRepaired) fields["bit"] = finding.bit;
  return skipped_span(finding.begin, finding.end, finding.error, fields);
}

py::object to_python(const Findings& findings) {
  return py::make_tuple(findings.n_records, findings.findings);
}

py::object to_python(const UnreadableRow& row) {
  py::dict fields;
  fields["records"] = 1;
  fields["row"] = row.row;
  return skipped_span(row.frame.offset, row.frame.end(), row.error, fields);
}

void register_records(py::module_& m) {
  using WithoutGil = py::call_guard<py::gil_scoped_release>;
  m.def("recognize", &recognize_file, py::arg("path"), WithoutGil());
  m.def(
      "holds_frames",
      [](const std::string& path) {
        return FrameWalk(Recovery::kRepair).holds_frames({path, Io::kPread});
      },
      py::arg("path"), WithoutGil());
  m.def(
      "is_end_proven",
      [](const std::string& path, std::uint64_t payload) {
        return is_end_proven({path, Io::kPread}, payload);
      },
      py::arg("path"), py::arg("payload"), WithoutGil());
  m.def(
      "is_remote", [](const std::string& path) { return File(path).is_remote(); },
      py::arg("path"), WithoutGil());

  py::class_<FileTable, std::shared_ptr<FileTable>>(m, "FileTable")
      .def(py::init([](const std::string& paths, std::vector<Io> ios,
                       const std::string& names, std::uint64_t record_bytes_max,
                       std::shared_ptr<RangeRequests> requests, bool is_assumed_plain) {
             return std::make_shared<FileTable>(split_paths(paths), std::move(ios),
                                                split_paths(names), record_bytes_max,
                                                std::move(requests), is_assumed_plain);
           }),
           py::arg("paths"), py::arg("ios"), py::arg("names") = "",
           py::arg("record_bytes_max") = kMaxPayloadBytes,
           py::arg("requests") = nullptr, py::arg("is_assumed_plain") = false)
      .def("__len__", &FileTable::size)
      .def(
          "expect",
          [](FileTable& files, const Indexes& indexes) {
            if (indexes.size() != files.size()) {
              throw py::value_error("indexes must have one element per file");
            }
            std::vector<FileIdentity> identities(indexes.size());
            std::ranges::transform(indexes, identities.begin(), &Index::identity);
            files.expect(std::move(identities));
          },
          py::arg("indexes"));

  py::class_<Catalog, std::shared_ptr<Catalog>>(m, "Catalog")
      .def(py::init([](std::shared_ptr<Indexes> indexes, const py::iterable& pieces,
                       Numbers row_ends) {
             return std::make_shared<Catalog>(std::move(indexes), pieces_of(pieces),
                                              from_array(row_ends));
           }),
           py::arg("indexes"), py::arg("pieces") = py::tuple(),
           py::arg("row_ends") = py::none())
      .def("__len__", &Catalog::size)
      .def(
          "places",
          [](const Catalog& catalog, Numbers numbers) {
            return places_array(frames_of(catalog, numbers));
          },
          py::arg("numbers"));

  py::class_<Examination>(m, "Examination")
      .def(py::init<std::string, std::uint64_t>(), py::arg("path"),
           py::arg("piece_bytes") = Examination::kPieceBytes, WithoutGil())
      .def_property_readonly("n_bytes", &Examination::n_bytes)
      .def_property_readonly("n_pieces", &Examination::n_pieces)
      .def("examine", &Examination::examine, py::arg("piece"), py::arg("progress"),
           WithoutGil())
      .def("finish", &Examination::finish, py::arg("progress"), WithoutGil());

  m.def("read_record", &read_record, py::arg("files"), py::arg("catalog"),
        py::arg("number"));
  m.def("read_records", &read_records, py::arg("files"), py::arg("catalog"),
        py::arg("pool"), py::arg("numbers"));
  m.def("read_frames", &read_frames, py::arg("files"), py::arg("catalog"),
        py::arg("numbers"), py::arg("begins"), py::arg("into").noconvert());
  m.def(
      "verify_records",
      [](std::shared_ptr<FileTable> files, const Catalog& catalog, Numbers numbers) {
        read_each(std::move(files), frames_of(catalog, numbers), [](Bytes) {});
      },
      py::arg("files"), py::arg("catalog"), py::arg("numbers"), WithoutGil());
  m.def(
      "stored_checksums",
      [](FileTable& files, const Catalog& catalog, Numbers numbers) {
        return array_of(without_gil(
            [&] { return stored_payload_crcs(frames_of(catalog, numbers), &files); }));
      },
      py::arg("files"), py::arg("catalog"), py::arg("numbers"));
}

}  // namespace fastrec
