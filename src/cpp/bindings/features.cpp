#include <pybind11/stl.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "bindings/bindings.h"
#include "example/infer.h"
#include "record/reader.h"

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
  if (name == "padded") return Layout::kPadded;
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
  py::list features;
  for (const auto& [key, seen] : survey.features()) {
    features.append(py::make_tuple(py::bytes(key), to_dict(seen)));
  }
  return py::make_tuple(survey.n_sequences(), features);
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

BoundSchema::BoundSchema(const py::list& columns, py::object compose)
    : int64_(py::dtype::of<std::int64_t>()),
      uint8_(py::dtype::of<std::uint8_t>()),
      compose_(std::move(compose)) {
  auto schema = std::make_shared<Schema>();
  for (const py::handle& column : columns) {
    Target target{column.attr("name"), column.attr("dtype").cast<py::dtype>(),
                  column.attr("shape").cast<std::vector<py::ssize_t>>(),
                  column.attr("has_lengths").cast<bool>()};
    ColumnSpec spec;
    spec.key = column.attr("key").cast<std::string>();
    spec.kind = kind_named(column.attr("kind").cast<std::string>());
    spec.layout = layout_named(column.attr("layout").cast<std::string>());
    spec.dtype = dtype_of(target.dtype, spec.layout, spec.kind);
    spec.item_bytes = spec.dtype == DType::kBytes
                          ? 0
                          : static_cast<std::size_t>(target.dtype.itemsize());
    for (const py::ssize_t size : target.shape) {
      spec.n_values *= static_cast<std::size_t>(size);
    }
    spec.swap_bytes = column.attr("swap_bytes").cast<std::size_t>();
    set_default(column.attr("default"), &spec);
    spec.length = column.attr("length").cast<std::optional<std::size_t>>();
    spec.multiple_of = column.attr("multiple_of").cast<std::size_t>();
    spec.truncate = column.attr("truncate").cast<bool>();
    spec.slot = column.attr("slot").cast<std::size_t>();
    spec.n_slots = column.attr("n_slots").cast<std::size_t>();
    spec.text = column.attr("text").cast<std::string>();
    schema->columns.push_back(std::move(spec));
    targets_.push_back(std::move(target));
  }
  schema_ = std::move(schema);
  const py::module_ arrays = py::module_::import("fastrec.arrays");
  bytes_array_ = arrays.attr("BytesArray").attr("_wrap");
  ragged_array_ = arrays.attr("RaggedArray").attr("_wrap");
}

// Makes NumPy arrays over the memory of a batch. Those in one block share its owner: it
// is one object for the whole batch.
class BoundSchema::Views {
 public:
  py::array of(const Array& array, const py::dtype& dtype,
               const std::vector<py::ssize_t>& shape) {
    for (const auto& [block, owner] : owners_) {
      if (block == array.block.get()) return view_of(array, dtype, shape, owner);
    }
    owners_.emplace_back(array.block.get(), owner_of(array.block));
    return view_of(array, dtype, shape, owners_.back().second);
  }

 private:
  std::vector<std::pair<const Block*, py::capsule>> owners_;
};

py::object BoundSchema::array(std::size_t c, const Batch& batch, Views* views) const {
  const Target& target = targets_[c];
  const ColumnSpec& spec = schema_->columns[c];
  const Column& column = batch.columns[c];
  const auto n_rows = static_cast<py::ssize_t>(batch.n_rows);
  std::vector<py::ssize_t> shape;
  if (spec.layout == Layout::kRagged) {
    shape.push_back(static_cast<py::ssize_t>(
        spec.n_values == 0 ? 0 : column.n_values / spec.n_values));
  } else {
    shape.push_back(n_rows);
  }
  if (spec.layout == Layout::kPadded) {
    shape.push_back(static_cast<py::ssize_t>(column.width));
  }
  if (spec.n_slots > 1) shape.push_back(static_cast<py::ssize_t>(spec.n_slots));
  shape.insert(shape.end(), target.shape.begin(), target.shape.end());

  py::object values;
  if (spec.dtype == DType::kBytes) {
    const auto n_strings = static_cast<py::ssize_t>(column.n_values);
    const py::array offsets = views->of(column.offsets, int64_, {n_strings + 1});
    const auto n_bytes = static_cast<const std::int64_t*>(offsets.data())[n_strings];
    values = bytes_array_(views->of(column.values, uint8_, {n_bytes}), offsets,
                          py::tuple(py::cast(shape)));
  } else {
    values = views->of(column.values, target.dtype, shape);
  }
  if (spec.layout != Layout::kRagged) return values;
  return ragged_array_(values, views->of(column.row_splits, int64_, {n_rows + 1}));
}

namespace {

// How many items each row had before it was padded.
py::array_t<std::int64_t> lengths_of(const Column& column, std::size_t n_rows) {
  py::array_t<std::int64_t> lengths(static_cast<py::ssize_t>(n_rows));
  const auto* splits = reinterpret_cast<const std::int64_t*>(column.row_splits.data);
  std::transform(splits + 1, splits + 1 + n_rows, splits, lengths.mutable_data(),
                 std::minus<>());
  return lengths;
}

}  // namespace

py::object BoundSchema::arrays(const Batch& batch) const {
  Views views;
  if (compose_.is_none()) {
    py::dict result;
    for (std::size_t c = 0; c < targets_.size(); ++c) {
      if (schema_->columns[c].slot != 0) continue;
      result[targets_[c].name] = array(c, batch, &views);
    }
    return std::move(result);
  }
  py::list result;
  for (std::size_t c = 0; c < targets_.size(); ++c) {
    if (schema_->columns[c].slot != 0) continue;
    result.append(array(c, batch, &views));
    if (targets_[c].has_lengths) {
      result.append(lengths_of(batch.columns[c], batch.n_rows));
    }
  }
  return compose_(result);
}

void register_features(py::module_& m) {
  py::class_<BoundSchema>(m, "Schema")
      .def(py::init<const py::list&, py::object>(), py::arg("columns"),
           py::arg("compose") = py::none());
  m.def("survey", &survey_records, py::arg("files"), py::arg("catalog"),
        py::arg("numbers"));
}

}  // namespace fastrec
