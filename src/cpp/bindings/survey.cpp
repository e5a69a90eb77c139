#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "record/reader.h"
#include "record/stream.h"
#include "survey/foreign.h"
#include "survey/image_size.h"
#include "survey/infer.h"

namespace fastrec {
namespace {

// Calls `step` without the GIL until it returns false. Checks for signals every
// kPatience, so that Ctrl-C works.
template <typename Step>
void run_interruptibly(Step&& step) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPatience(50);
  bool is_more = true;
  while (is_more) {
    {
      const py::gil_scoped_release released;
      const Clock::time_point until = Clock::now() + kPatience;
      while (is_more && Clock::now() < until) is_more = step();
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

// Adds a record in memory.
void add(Survey& survey, Bytes record) {
  // Copies, because values are counted before they are decoded, and another thread
  // could change the memory in between.
  const std::vector<std::uint8_t> copy(record.begin(), record.end());
  if (const Fault fault = survey.add(copy)) {
    Error error(fault.code, describe(fault), "");
    error.record = survey.n_records();
    error.offset = fault.offset;
    throw error;
  }
}

// Adds the records `numbers`. Throws for an unreadable record, or skips it.
void add_records(Survey& survey, std::shared_ptr<FileTable> files,
                 const Catalog& catalog, Numbers numbers, bool skip_unreadable) {
  const FrameRuns frames = frames_of(catalog, numbers);
  RecordReader reader(files);
  reader.start(frames);
  PlaceCursor places(&frames);
  std::size_t i = 0;
  run_interruptibly([&] {
    if (i == frames.size()) return false;
    const Place place = places.at(i++);
    Bytes payload;
    Fault fault = reader.next(&payload);
    if (!fault) {
      fault = survey.add(payload);
      fault.offset += place.frame.payload();
    }
    if (fault && !(skip_unreadable && is_of_record(fault.code))) {
      throw record_error(fault, describe(fault), place, *files);
    }
    return true;
  });
}

// Adds at most `n_records_max` records of a stream, and stops after `bytes_max` bytes.
// Returns the number of records read, including skipped ones.
std::uint64_t add_stream(Survey& survey, FrameStream& stream,
                         std::uint64_t n_records_max, std::uint64_t bytes_max,
                         bool skip_unreadable) {
  StreamRecord record;
  std::uint64_t n_records = 0, n_bytes = 0;
  run_interruptibly([&] {
    if (n_records == n_records_max || n_bytes >= bytes_max) return false;
    if (!stream.next(&record)) return false;
    Fault fault = record.fault;
    ++n_records;
    n_bytes += record.payload().size();
    if (!fault) {
      fault = survey.add(record.payload());
      fault.offset += record.place.frame.payload();
    }
    if (fault && !(skip_unreadable && is_of_record(fault.code))) {
      throw stream.error_in(record.place, fault);
    }
    return true;
  });
  return n_records;
}

py::dict kinds_of(const FeatureSurvey& survey) {
  py::dict kinds;
  for (const FeatureKind kind :
       {FeatureKind::kBytes, FeatureKind::kFloat, FeatureKind::kInt64}) {
    const std::uint64_t n = survey.n_of_kind[static_cast<std::size_t>(kind)];
    if (n != 0) kinds[kind_name(kind)] = n;
  }
  return kinds;
}

// [(dtype, is_extended, n_nonzero)] of the possible dtypes.
py::list dtypes_of(const FeatureSurvey& survey) {
  py::list list;
  for (std::size_t i = 0; i < survey.arrays.dtypes.size(); ++i) {
    const DtypeEvidence& seen = survey.arrays.dtypes[i];
    if (!seen.is_possible()) continue;
    list.append(py::make_tuple(name_of(ArrayGuess::kDtypes[i]), seen.is_extended,
                               seen.n_nonzero));
  }
  return list;
}

// (dtype number, shape); (0, ()) if they differ; None unless all strings are tensors.
py::object tensor_of(const FeatureSurvey& survey) {
  const TensorGuess& seen = survey.tensors;
  if (seen.n_seen == 0 || seen.n_seen != survey.n_values || !seen.is_possible) {
    return py::none();
  }
  if (!seen.is_uniform) return py::make_tuple(0, py::tuple());
  return py::make_tuple(seen.dtype, py::tuple(py::cast(seen.shape)));
}

py::tuple to_tuple(ImageSize size) {
  return py::make_tuple(size.width, size.height, size.channels, size.bits);
}

// (least, most) width, height, channels and bits; None unless all are images.
py::object images_of(const FeatureSurvey& survey) {
  if (survey.n_images == 0 || survey.n_images != survey.n_values) return py::none();
  return py::make_tuple(to_tuple(survey.image_min), to_tuple(survey.image_max));
}

py::object image_size(Bytes file) {
  const std::optional<ImageSize> size = image_size_of(file);
  return size ? py::object(py::make_tuple(size->width, size->height)) : py::none();
}

// [(key, survey), ...].
template <typename Seen>
py::list to_list(const std::map<std::string, Seen>& surveys) {
  py::list list;
  for (const auto& [key, seen] : surveys) {
    list.append(py::make_tuple(py::bytes(key), seen));
  }
  return list;
}

}  // namespace

void register_survey(py::module_& m) {
  m.def("image_size", &image_size, py::arg("file"));
  m.def("describe_foreign", py::overload_cast<Bytes>(&describe_foreign),
        py::arg("record"));
  py::class_<FeatureSurvey>(m, "FeatureSurvey")
      .def_property_readonly("kinds", &kinds_of)
      .def_property_readonly(
          "n_unset", [](const FeatureSurvey& survey) { return survey.n_of_kind[0]; })
      .def_property_readonly("n_present", &FeatureSurvey::n_present)
      .def_readonly("n_values", &FeatureSurvey::n_values)
      .def_readonly("n_values_min", &FeatureSurvey::n_values_min)
      .def_readonly("n_values_max", &FeatureSurvey::n_values_max)
      .def_readonly("n_ranged", &FeatureSurvey::n_ranged)
      .def_readonly("int_min", &FeatureSurvey::int_min)
      .def_readonly("int_max", &FeatureSurvey::int_max)
      .def_readonly("float_min", &FeatureSurvey::float_min)
      .def_readonly("float_max", &FeatureSurvey::float_max)
      .def_readonly("bytes_min", &FeatureSurvey::bytes_min)
      .def_readonly("bytes_max", &FeatureSurvey::bytes_max)
      .def_property_readonly("dtypes", &dtypes_of)
      .def_property_readonly("tensor", &tensor_of)
      .def_property_readonly("images", &images_of)
      .def_property_readonly(
          "format", [](const FeatureSurvey& survey) { return name_of(survey.format); });

  py::class_<ListSurvey>(m, "ListSurvey")
      .def_readonly("n_records", &ListSurvey::n_records)
      .def_readonly("n_steps_min", &ListSurvey::n_steps_min)
      .def_readonly("n_steps_max", &ListSurvey::n_steps_max)
      .def_readonly("steps", &ListSurvey::steps);

  py::class_<Survey>(m, "Survey")
      .def(py::init<std::size_t>(), py::arg("features_max"))
      .def("add", &add, py::arg("record"))
      .def("add_records", &add_records, py::arg("files"), py::arg("catalog"),
           py::arg("numbers"), py::arg("skip_unreadable"))
      .def("add_stream", &add_stream, py::arg("stream"), py::arg("n_records_max"),
           py::arg("bytes_max"), py::arg("skip_unreadable"))
      .def_property_readonly("n_records", &Survey::n_records)
      .def_property_readonly("foreign", &Survey::foreign)
      .def_property_readonly("n_sequences", &Survey::n_sequences)
      .def_property_readonly(
          "features", [](const Survey& survey) { return to_list(survey.features()); })
      .def_property_readonly(
          "lists", [](const Survey& survey) { return to_list(survey.lists()); });
}

}  // namespace fastrec
