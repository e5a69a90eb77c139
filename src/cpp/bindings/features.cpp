#include <algorithm>
#include <optional>
#include <utility>

#include "bindings/bindings.h"
#include "decode/decode.h"
#include "decode/sequence.h"
#include "file/buffer.h"
#include "survey/advice.h"
#include "survey/foreign.h"

namespace pybind11::detail {

template <>
struct type_caster<fastrec::Partition>
    : fastrec::TupleCaster<fastrec::Partition, &fastrec::Partition::kind,
                           &fastrec::Partition::column,
                           &fastrec::Partition::uniform_length> {};
template <>
struct type_caster<fastrec::RowRule::Indices>
    : fastrec::TupleCaster<fastrec::RowRule::Indices,
                           &fastrec::RowRule::Indices::column,
                           &fastrec::RowRule::Indices::size> {};

}  // namespace pybind11::detail

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
  // NumPy's `dtype.name` takes a microsecond. bfloat16 needs it: its kind is 'V'.
  const char* const prefix = code == 'i' ? "int" : code == 'u' ? "uint" : "float";
  const auto name = code == 'i' || code == 'u' || code == 'f'
                        ? prefix + std::to_string(8 * dtype.itemsize())
                        : dtype.attr("name").cast<std::string>();
  const std::optional<DType> found = named<DType>(name);
  if (!found) throw py::value_error("unsupported column dtype '" + name + "'");
  return *found;
}

// A default is a list of byte strings, or the memory of the values.
void set_default(const py::object& value, ColumnSpec* spec) {
  if (value.is_none()) return;
  if (py::isinstance<py::bytes>(value)) {
    const auto bytes = value.cast<std::string>();
    spec->default_values.emplace(bytes.begin(), bytes.end());
  } else {
    spec->default_strings = value.cast<std::vector<std::string>>();
  }
}

}  // namespace

BoundSchema::BoundSchema(const py::list& columns, const py::list& rules,
                         py::object compose, std::string source)
    : maker_(std::move(compose)) {
  auto schema = std::make_shared<Schema>();
  schema->source = std::move(source);
  for (const py::handle& column : columns) {
    auto dtype = column.attr("dtype").cast<py::dtype>();
    const auto shape = column.attr("shape").cast<std::vector<py::ssize_t>>();
    ColumnSpec spec;
    spec.key = column.attr("key").cast<std::string>();
    spec.section = column.attr("section").cast<Section>();
    spec.is_required = column.attr("is_required").cast<bool>();
    spec.kind = column.attr("kind").cast<FeatureKind>();
    spec.layout = column.attr("layout").cast<Layout>();
    spec.tensor_dtype = column.attr("tensor_dtype").cast<std::uint32_t>();
    spec.dtype = dtype_of(dtype, spec.layout, spec.kind, spec.tensor_dtype);
    spec.item_bytes =
        spec.dtype == DType::kBytes ? 0 : static_cast<std::size_t>(dtype.itemsize());
    for (const py::ssize_t size : shape) {
      spec.n_values *= static_cast<std::size_t>(size);
    }
    spec.swap_bytes = column.attr("swap_bytes").cast<std::size_t>();
    set_default(column.attr("default"), &spec);
    spec.tensor_shape.assign(shape.begin(), shape.end());
    spec.length = column.attr("length").cast<std::optional<std::size_t>>();
    spec.multiple_of = column.attr("multiple_of").cast<std::size_t>();
    spec.truncate = column.attr("truncate").cast<bool>();
    spec.slot = column.attr("slot").cast<std::size_t>();
    spec.n_slots = column.attr("n_slots").cast<std::size_t>();
    spec.text = column.attr("text").cast<std::string>();
    maker_.add(spec, column.attr("name"), std::move(dtype), shape,
               column.attr("has_lengths").cast<bool>());
    schema->columns.push_back(std::move(spec));
  }
  for (const py::handle& rule : rules) {
    schema->rules.push_back(
        {rule.attr("values").cast<std::size_t>(),
         rule.attr("partitions").cast<std::vector<Partition>>(),
         rule.attr("indices").cast<std::vector<RowRule::Indices>>()});
  }
  schema_ = std::move(schema);
}

struct RowDecoder {
  RowDecoder(const std::shared_ptr<const Schema>& schema,
             std::shared_ptr<BlockPool> pool)
      : decoder(schema), builder(schema, std::move(pool)) {}

  // Decodes a private copy of `bytes`. Throws Error.
  void decode(Bytes bytes) {
    const MutableBytes copy = record.room(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy.begin());
    Fault fault = decoder.decode(BytesWithSlack(copy), 0, &builder);
    if (!fault && decoder.has_found_nothing()) fault = check_example(copy);
    if (!fault) return;
    Error error = explain(decoder.schema(), fault, copy);
    error.record = 0;
    error.offset = fault.offset;
    throw error;
  }

  ExampleDecoder decoder;
  BatchBuilder builder;
  Buffer record;
};

BoundSchema::~BoundSchema() = default;

py::object BoundSchema::parse_row(const std::shared_ptr<BlockPool>& pool,
                                  const py::handle& record) const {
  const BufferView view(record);
  const Bytes bytes = view.bytes();
  std::unique_ptr<RowDecoder> state = decoders_.take();
  if (!state) state = std::make_unique<RowDecoder>(schema_, pool);
  Batch batch;
  std::span<const Column> columns;
  {
    // Releasing the GIL costs as much as decoding a small record.
    const bool is_large = bytes.size() >= MappedPath::kMinFrameBytes;
    std::optional<py::gil_scoped_release> released;
    if (is_large) released.emplace();
    state->builder.begin(1);
    if (!is_large || !state->decoder.decode_unframed(bytes, 0, &state->builder)) {
      state->decode(bytes);
    }
    if (maker_.creates_rows()) {
      columns = state->builder.finish_row();
    } else {
      batch = state->builder.finish(1);
    }
  }
  py::object row = maker_.creates_rows()
                       ? maker_.row(columns)
                       : BatchRows(maker_.arrays(&batch).cast<py::dict>()).row(0);
  if (bytes.size() <= IdleList<RowDecoder>::kRecordBytesMax) {
    decoders_.put(std::move(state));
  }
  return row;
}

namespace {

// Serialized examples in the memory of Python objects, which it keeps alive.
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
  Serialized(const py::handle& data, const Int64Array& offsets) {
    views_.push_back(std::make_unique<BufferView>(data));
    const Bytes whole = views_.back()->bytes();
    for (py::ssize_t i = 0; i + 1 < offsets.size(); ++i) {
      const auto begin = static_cast<std::size_t>(offsets.at(i));
      const auto end = static_cast<std::size_t>(offsets.at(i + 1));
      if (begin > end || end > whole.size()) {
        throw py::value_error("offsets must ascend within data");
      }
      records_.push_back(whole.subspan(begin, end - begin));
    }
  }

  std::size_t size() const noexcept { return records_.size(); }

  // A private copy of record `i`, valid until the next call.
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

// `records` is a sequence of buffers, or (data, offsets).
Serialized serialized(const py::object& records) {
  if (py::isinstance<py::tuple>(records)) {
    const auto parts = records.cast<py::tuple>();
    return {parts[0], parts[1].cast<Int64Array>()};
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
      Fault fault = decoder.decode(record, row, &builder);
      if (!fault && decoder.has_found_nothing()) {
        fault = check_example(record.bytes());
      }
      if (!fault) continue;
      Error error = explain(decoder.schema(), fault, record.bytes());
      error.record = row;
      error.offset = fault.offset;
      throw error;
    }
    batch = builder.finish(records.size());
  }
  return schema.arrays(&batch);
}

}  // namespace

void register_features(py::module_& m) {
  py::class_<BoundSchema>(m, "Schema")
      .def(py::init<const py::list&, const py::list&, py::object, std::string>(),
           py::arg("columns"), py::arg("rules") = py::list(),
           py::arg("compose") = py::none(), py::arg("source") = "")
      .def("parse_row", &BoundSchema::parse_row, py::arg("pool"), py::arg("record"));
  m.def("has_feature_lists", &has_feature_lists, py::arg("record"));
  m.def("parse_examples", &parse_examples, py::arg("schema"), py::arg("pool"),
        py::arg("examples"));
}

}  // namespace fastrec
