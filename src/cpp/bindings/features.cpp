#include <pybind11/stl.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include "bindings/bindings.h"
#include "decode/decode.h"
#include "decode/sequence.h"
#include "file/buffer.h"
#include "survey/advice.h"

namespace fastrec {
namespace {

DType dtype_of(const py::dtype& dtype, Layout layout, FeatureKind kind,
               std::uint32_t tensor_dtype) {
  const char code = dtype.kind();
  if (layout == Layout::kTensor) {
    if (tensor_dtype == 0 || tensor_dtype == TensorReader::kString) {
      return DType::kBytes;
    }
    return code == 'b' ? DType::kBool : DType::kOpaque;
  }
  if (layout == Layout::kRaw) return code == 'b' ? DType::kBool : DType::kOpaque;
  if (kind == FeatureKind::kBytes) return DType::kBytes;
  if (code == 'b') return DType::kBool;
  // NumPy's own name of a dtype takes a microsecond; that of bfloat16 is not of its
  // kind.
  const char* const prefix = code == 'i' ? "int" : code == 'u' ? "uint" : "float";
  const auto name = code == 'i' || code == 'u' || code == 'f'
                        ? prefix + std::to_string(8 * dtype.itemsize())
                        : dtype.attr("name").cast<std::string>();
  const std::optional<DType> found = named<DType>(name);
  if (!found) throw py::value_error("a column cannot be of dtype " + name);
  return *found;
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

RowRule rule_of(const py::handle& rule) {
  RowRule result;
  result.values = rule.attr("values").cast<std::size_t>();
  for (const py::handle item : rule.attr("partitions")) {
    const auto [kind, column, length] =
        item.cast<std::tuple<PartitionKind, std::size_t, std::uint64_t>>();
    result.partitions.push_back({kind, column, length});
  }
  for (const py::handle item : rule.attr("indices")) {
    const auto [column, size] = item.cast<std::tuple<std::size_t, std::int64_t>>();
    result.indices.push_back({column, size});
  }
  return result;
}

}  // namespace

py::array view_of(const Array& array, const py::dtype& dtype,
                  const std::vector<py::ssize_t>& shape, const py::handle& owner) {
  return py::array(dtype, shape, {}, array.data, owner);
}

py::object owner_of(std::shared_ptr<Block> block) { return py::cast(std::move(block)); }

BoundSchema::BoundSchema(const py::list& columns, const py::list& rules,
                         py::object compose, std::string source)
    : int64_(py::dtype::of<std::int64_t>()),
      uint8_(py::dtype::of<std::uint8_t>()),
      compose_(std::move(compose)) {
  auto schema = std::make_shared<Schema>();
  schema->source = std::move(source);
  for (const py::handle& column : columns) {
    Target target{column.attr("name"), column.attr("dtype").cast<py::dtype>(),
                  column.attr("shape").cast<std::vector<py::ssize_t>>(),
                  column.attr("has_lengths").cast<bool>()};
    ColumnSpec spec;
    spec.key = column.attr("key").cast<std::string>();
    spec.section = column.attr("section").cast<Section>();
    spec.is_required = column.attr("is_required").cast<bool>();
    spec.kind = column.attr("kind").cast<FeatureKind>();
    spec.layout = column.attr("layout").cast<Layout>();
    spec.tensor_dtype = column.attr("tensor_dtype").cast<std::uint32_t>();
    spec.dtype = dtype_of(target.dtype, spec.layout, spec.kind, spec.tensor_dtype);
    spec.item_bytes = spec.dtype == DType::kBytes
                          ? 0
                          : static_cast<std::size_t>(target.dtype.itemsize());
    for (const py::ssize_t size : target.shape) {
      spec.n_values *= static_cast<std::size_t>(size);
    }
    spec.swap_bytes = column.attr("swap_bytes").cast<std::size_t>();
    set_default(column.attr("default"), &spec);
    spec.tensor_shape.assign(target.shape.begin(), target.shape.end());
    spec.length = column.attr("length").cast<std::optional<std::size_t>>();
    spec.multiple_of = column.attr("multiple_of").cast<std::size_t>();
    spec.truncate = column.attr("truncate").cast<bool>();
    spec.slot = column.attr("slot").cast<std::size_t>();
    spec.n_slots = column.attr("n_slots").cast<std::size_t>();
    spec.text = column.attr("text").cast<std::string>();
    schema->columns.push_back(std::move(spec));
    targets_.push_back(std::move(target));
  }
  for (const py::handle& rule : rules) schema->rules.push_back(rule_of(rule));
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
    if (array.block.get() != last_block_) {
      last_block_ = array.block.get();
      last_owner_ = &owners_[last_block_];
      if (!*last_owner_) *last_owner_ = owner_of(array.block);
    }
    return view_of(array, dtype, shape, *last_owner_);
  }

 private:
  std::unordered_map<const Block*, py::object> owners_;
  const Block* last_block_ = nullptr;
  py::object* last_owner_ = nullptr;
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
    return result;
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

namespace {

// Serialized examples in the memory of Python objects, which stay alive and unchanged.
class Serialized {
 public:
  explicit Serialized(const py::sequence& records) {
    const std::size_t n = records.size();
    views_.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
      views_.push_back(std::make_unique<BufferView>(records[i]));
      records_.push_back(views_.back()->bytes());
    }
  }

  // Record i is data[offsets[i]:offsets[i + 1]].
  Serialized(const py::handle& data, const RecordNumbers& offsets) {
    views_.push_back(std::make_unique<BufferView>(data));
    const Bytes whole = views_.back()->bytes();
    for (py::ssize_t i = 0; i + 1 < offsets.size(); ++i) {
      const auto begin = static_cast<std::size_t>(offsets.at(i));
      const auto end = static_cast<std::size_t>(offsets.at(i + 1));
      if (begin > end || end > whole.size()) {
        throw py::value_error("offsets reach past their data");
      }
      records_.push_back(whole.subspan(begin, end - begin));
    }
  }

  std::size_t size() const noexcept { return records_.size(); }

  // A private copy of record `i`, until the next call.
  BytesWithSlack copy(std::size_t i) {
    const MutableBytes room = copy_.room(records_[i].size());
    std::copy(records_[i].begin(), records_[i].end(), room.begin());
    return BytesWithSlack(room);
  }

 private:
  std::vector<std::unique_ptr<BufferView>> views_;
  std::vector<Bytes> records_;
  Buffer copy_;
};

// `records` is a sequence of objects with memory, or (data, offsets).
Serialized serialized(const py::object& records) {
  if (py::isinstance<py::tuple>(records)) {
    const auto parts = records.cast<py::tuple>();
    return {parts[0], parts[1].cast<RecordNumbers>()};
  }
  return Serialized(records.cast<py::sequence>());
}

py::object parse_examples(const BoundSchema& schema, std::shared_ptr<BlockPool> pool,
                          const py::object& examples) {
  Serialized records = serialized(examples);
  Batch batch;
  {
    const py::gil_scoped_release released;
    ExampleDecoder decoder(schema.schema());
    BatchBuilder builder(schema.schema(), std::move(pool));
    builder.begin(records.size());
    for (std::size_t row = 0; row < records.size(); ++row) {
      const BytesWithSlack record = records.copy(row);
      const Fault fault = decoder.decode(record, row, &builder);
      if (!fault) continue;
      Error error = explain(decoder, fault, record.bytes());
      error.record = row;
      error.offset = fault.offset;
      throw error;
    }
    batch = builder.finish(records.size());
  }
  return schema.arrays(batch);
}

}  // namespace

void register_features(py::module_& m) {
  py::class_<BoundSchema>(m, "Schema")
      .def(py::init<const py::list&, const py::list&, py::object, std::string>(),
           py::arg("columns"), py::arg("rules") = py::list(),
           py::arg("compose") = py::none(), py::arg("source") = "");
  m.def(
      "has_feature_lists",
      [](const py::buffer& record) {
        return has_feature_lists(BufferView(record).bytes());
      },
      py::arg("record"));
  m.def("parse_examples", &parse_examples, py::arg("schema"), py::arg("pool"),
        py::arg("examples"));
}

}  // namespace fastrec
