#include <deque>
#include <optional>
#include <utility>

#include "bindings/bindings.h"
#include "decode/mapped_path.h"
#include "decode/sequence.h"

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

template <>
struct type_caster<fastrec::Reach>
    : fastrec::TupleCaster<fastrec::Reach, &fastrec::Reach::first,
                           &fastrec::Reach::every, &fastrec::Reach::low,
                           &fastrec::Reach::high> {};

}  // namespace pybind11::detail

namespace fastrec {
namespace {

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
    spec.dtype = column.attr("core_dtype").cast<DType>();
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
    spec.reach = column.attr("reach").cast<std::optional<Reach>>();
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

py::object BoundSchema::parse_row(const std::shared_ptr<BlockPool>& pool,
                                  Bytes record) const {
  std::unique_ptr<MemoryDecoder> decoder = decoders_.take();
  if (!decoder) decoder = std::make_unique<MemoryDecoder>(schema_, pool);
  Batch batch;
  std::span<const Column> columns;
  {
    // Releasing the GIL costs as much as decoding a small record.
    std::optional<py::gil_scoped_release> released;
    if (record.size() >= MappedPath::kMinFrameBytes) released.emplace();
    if (maker_.creates_rows()) {
      columns = decoder->decode_row(record);
    } else {
      batch = decoder->decode({&record, 1});
    }
  }
  py::object row = maker_.row(columns, &batch);
  if (record.size() <= IdleList<MemoryDecoder>::kRecordBytesMax) {
    decoders_.put(std::move(decoder));
  }
  return row;
}

namespace {

py::object parse(const BoundSchema& schema, std::shared_ptr<BlockPool> pool,
                 std::span<const Bytes> records) {
  Batch batch = without_gil(
      [&] { return MemoryDecoder(schema.schema(), std::move(pool)).decode(records); });
  return schema.arrays(&batch);
}

// `examples` is a sequence of buffers, or (data, offsets): record i is
// data[offsets[i]:offsets[i + 1]].
py::object parse_examples(const BoundSchema& schema, std::shared_ptr<BlockPool> pool,
                          const py::sequence& examples) {
  std::vector<Bytes> records;
  if (py::isinstance<py::tuple>(examples)) {
    const BufferView data(examples[0]);
    const auto offsets = examples[1].cast<Int64Array>();
    for (py::ssize_t i = 0; i + 1 < offsets.size(); ++i) {
      const auto begin = static_cast<std::size_t>(offsets.at(i));
      const auto end = static_cast<std::size_t>(offsets.at(i + 1));
      if (begin > end || end > data.bytes().size()) {
        throw py::value_error("offsets must ascend within data");
      }
      records.push_back(data.bytes().subspan(begin, end - begin));
    }
    return parse(schema, std::move(pool), records);
  }
  std::deque<BufferView> views;
  for (const py::object example : examples) {
    records.push_back(views.emplace_back(example).bytes());
  }
  return parse(schema, std::move(pool), records);
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
