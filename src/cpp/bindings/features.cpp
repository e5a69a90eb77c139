#include <pybind11/stl.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "bindings/bindings.h"
#include "example/infer.h"
#include "record/reader.h"
#include "record/stream.h"

namespace fastrec {
namespace {

FeatureKind kind_named(const std::string& name) {
  for (const FeatureKind kind :
       {FeatureKind::kBytes, FeatureKind::kFloat, FeatureKind::kInt64}) {
    if (name == kind_name(kind)) return kind;
  }
  throw py::value_error("no kind of values is named " + name);
}

Layout layout_named(const std::string& name) {
  if (name == "dense") return Layout::kDense;
  if (name == "ragged") return Layout::kRagged;
  if (name == "raw") return Layout::kRaw;
  throw py::value_error("no layout is named " + name);
}

DType dtype_of(const py::dtype& dtype, Layout layout, FeatureKind kind) {
  const char code = dtype.kind();
  if (code == 'b') return DType::kBool;
  if (layout == Layout::kRaw) return DType::kOpaque;
  if (kind == FeatureKind::kBytes) return DType::kBytes;
  switch (code * 16 + static_cast<int>(dtype.itemsize())) {
    case 'i' * 16 + 1:
      return DType::kInt8;
    case 'i' * 16 + 2:
      return DType::kInt16;
    case 'i' * 16 + 4:
      return DType::kInt32;
    case 'i' * 16 + 8:
      return DType::kInt64;
    case 'u' * 16 + 1:
      return DType::kUint8;
    case 'u' * 16 + 2:
      return DType::kUint16;
    case 'u' * 16 + 4:
      return DType::kUint32;
    case 'u' * 16 + 8:
      return DType::kUint64;
    case 'f' * 16 + 2:
      return DType::kFloat16;
    case 'f' * 16 + 4:
      return DType::kFloat32;
    case 'f' * 16 + 8:
      return DType::kFloat64;
    default:
      throw py::value_error("a column cannot be of dtype " +
                            py::str(dtype).cast<std::string>());
  }
}

// A default is a list of byte strings, or the bytes of the values in the column.
void set_default(const py::object& value, ColumnSpec* spec) {
  if (value.is_none()) return;
  if (py::isinstance<py::bytes>(value)) {
    const auto bytes = value.cast<std::string>();
    spec->default_values.emplace(bytes.begin(), bytes.end());
  } else {
    spec->default_strings = value.cast<std::vector<std::string>>();
  }
}

py::dict to_dict(const FeatureSurvey& survey) {
  py::dict kinds;
  for (const FeatureKind kind :
       {FeatureKind::kBytes, FeatureKind::kFloat, FeatureKind::kInt64}) {
    const auto i = static_cast<std::size_t>(kind);
    if (survey.n_records[i] == 0) continue;
    kinds[kind_name(kind)] =
        py::make_tuple(survey.n_records[i], survey.first_record[i]);
  }
  py::dict result;
  result["kinds"] = kinds;
  result["n_present"] = survey.n_present();
  result["n_values"] = survey.n_values;
  result["n_ranged"] = survey.n_ranged;
  result["n_values_min"] = survey.n_values_min;
  result["n_values_max"] = survey.n_values_max;
  result["int_range"] = py::make_tuple(survey.int_min, survey.int_max);
  result["float_range"] = py::make_tuple(survey.float_min, survey.float_max);
  result["bytes_range"] = py::make_tuple(survey.bytes_min, survey.bytes_max);
  return result;
}

py::tuple result_of(const Survey& survey) {
  py::list features;
  for (const auto& [key, seen] : survey.features()) {
    features.append(py::make_tuple(py::bytes(key), to_dict(seen)));
  }
  return py::make_tuple(survey.n_sequences(), features);
}

// Surveys the records `numbers`: (records with a field 2, [(key, what was seen), ...]).
py::tuple survey_records(std::shared_ptr<FileTable> files, const Catalog& catalog,
                         const RecordNumbers& numbers) {
  const std::vector<Place> places = places_of(catalog, numbers);
  Survey survey;
  {
    const py::gil_scoped_release released;
    RecordReader reader(files);
    reader.start(places);
    for (const Place& place : places) {
      Bytes payload;
      Fault fault = reader.next(&payload);
      if (!fault) {
        fault = survey.add(payload);
        fault.offset += place.frame.payload();
      }
      if (fault) throw record_error(fault, describe(fault), place, *files);
    }
  }
  return result_of(survey);
}

// Surveys the first records of a stream: how many there were, and the same.
py::tuple survey_stream(FrameStream& stream, std::uint64_t n_records_max,
                        std::uint64_t bytes_max) {
  Survey survey;
  std::uint64_t n_records = 0;
  {
    const py::gil_scoped_release released;
    StreamRecord record;
    std::uint64_t n_bytes = 0;
    while (n_records < n_records_max && n_bytes < bytes_max &&
           record.read_from(&stream)) {
      ++n_records;
      n_bytes += record.payload().size();
      Fault fault = survey.add(record.payload());
      fault.offset += record.place().frame.payload();
      if (fault) throw stream.error_in(record.place(), fault, describe(fault));
    }
  }
  return py::make_tuple(n_records) + result_of(survey);
}

}  // namespace

py::array view_of(const Array& array, const py::dtype& dtype,
                  const std::vector<py::ssize_t>& shape, const py::handle& owner) {
  return py::array(dtype, shape, {}, array.data, owner);
}

py::capsule owner_of(std::shared_ptr<Block> block) {
  auto owner = std::make_unique<std::shared_ptr<Block>>(std::move(block));
  py::capsule capsule(owner.get(),
                      [](void* p) { delete static_cast<std::shared_ptr<Block>*>(p); });
  owner.release();
  return capsule;
}

BoundSchema::BoundSchema(const py::list& columns)
    : int64_(py::dtype::of<std::int64_t>()), uint8_(py::dtype::of<std::uint8_t>()) {
  auto schema = std::make_shared<Schema>();
  for (const py::handle& item : columns) {
    const auto column = item.cast<py::tuple>();
    Target target{column[0], column[4].cast<py::dtype>(),
                  column[5].cast<std::vector<py::ssize_t>>()};
    ColumnSpec spec;
    spec.key = column[1].cast<std::string>();
    spec.kind = kind_named(column[2].cast<std::string>());
    spec.layout = layout_named(column[3].cast<std::string>());
    spec.dtype = dtype_of(target.dtype, spec.layout, spec.kind);
    spec.item_bytes = spec.dtype == DType::kBytes
                          ? 0
                          : static_cast<std::size_t>(target.dtype.itemsize());
    for (const py::ssize_t size : target.shape) {
      spec.n_values *= static_cast<std::size_t>(size);
    }
    spec.swap_bytes = column[6].cast<std::size_t>();
    set_default(column[7], &spec);
    spec.text = column[8].cast<std::string>();
    schema->columns.push_back(std::move(spec));
    targets_.push_back(std::move(target));
  }
  schema_ = std::move(schema);
  const py::module_ arrays = py::module_::import("fastrec.arrays");
  bytes_array_ = arrays.attr("BytesArray").attr("_wrap");
  ragged_array_ = arrays.attr("RaggedArray").attr("_wrap");
}

py::dict BoundSchema::arrays(const Batch& batch) const {
  // Arrays in one block share its owner: it is one object for the whole batch.
  std::vector<std::pair<const Block*, py::capsule>> owners;
  const auto view = [&](const Array& array, const py::dtype& dtype,
                        const std::vector<py::ssize_t>& shape) {
    for (const auto& [block, owner] : owners) {
      if (block == array.block.get()) return view_of(array, dtype, shape, owner);
    }
    owners.emplace_back(array.block.get(), owner_of(array.block));
    return view_of(array, dtype, shape, owners.back().second);
  };
  const auto n_rows = static_cast<py::ssize_t>(batch.n_rows);

  py::dict result;
  std::vector<py::ssize_t> shape;
  for (std::size_t c = 0; c < targets_.size(); ++c) {
    const Target& target = targets_[c];
    const ColumnSpec& spec = schema_->columns[c];
    const Column& column = batch.columns[c];
    const bool is_ragged = spec.layout == Layout::kRagged;
    shape.assign(1, is_ragged
                        ? static_cast<py::ssize_t>(
                              spec.n_values == 0 ? 0 : column.n_values / spec.n_values)
                        : n_rows);
    shape.insert(shape.end(), target.shape.begin(), target.shape.end());

    py::object values;
    if (spec.dtype == DType::kBytes) {
      const auto n_strings = static_cast<py::ssize_t>(column.n_values);
      const py::array offsets = view(column.offsets, int64_, {n_strings + 1});
      const auto n_bytes = static_cast<const std::int64_t*>(offsets.data())[n_strings];
      values = bytes_array_(view(column.values, uint8_, {n_bytes}), offsets,
                            py::tuple(py::cast(shape)));
    } else {
      values = view(column.values, target.dtype, shape);
    }
    if (is_ragged) {
      values = ragged_array_(values, view(column.row_splits, int64_, {n_rows + 1}));
    }
    result[target.name] = std::move(values);
  }
  return result;
}

void register_features(py::module_& m) {
  py::class_<BoundSchema>(m, "Schema")
      .def(py::init<const py::list&>(), py::arg("columns"));
  m.def("survey", &survey_records, py::arg("files"), py::arg("catalog"),
        py::arg("numbers"));
  m.def("survey_stream", &survey_stream, py::arg("stream"), py::arg("n_records_max"),
        py::arg("bytes_max"));
}

}  // namespace fastrec
