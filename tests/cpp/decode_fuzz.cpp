// libFuzzer entry: any bytes at all, read as a tf.train.Example and a SequenceExample.
//
// Every layout and kind of column reads the record; what is not refused must be a batch
// whose splits and offsets are in order, the same when it is decoded again. Both ways
// of reading give the same, whatever was read before.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "both_ways.h"
#include "example/decode.h"
#include "example/infer.h"

namespace fastrec {
namespace {

std::shared_ptr<const Schema> every_column() {
  auto schema = std::make_shared<Schema>();
  const auto add = [&](const char* key, FeatureKind kind, Layout layout, DType dtype,
                       std::size_t item_bytes, bool has_default) {
    ColumnSpec spec;
    spec.key = key;
    spec.kind = kind;
    spec.layout = layout;
    spec.dtype = dtype;
    spec.item_bytes = item_bytes;
    if (has_default && dtype == DType::kBytes) spec.default_strings = {{""}};
    if (has_default && dtype != DType::kBytes) {
      spec.default_values = std::vector<std::uint8_t>(item_bytes);
    }
    schema->columns.push_back(std::move(spec));
  };
  add("i", FeatureKind::kInt64, Layout::kRagged, DType::kInt64, 8, false);
  add("i", FeatureKind::kInt64, Layout::kRagged, DType::kInt16, 2, false);
  add("f", FeatureKind::kFloat, Layout::kRagged, DType::kFloat32, 4, false);
  add("f", FeatureKind::kFloat, Layout::kRagged, DType::kFloat16, 2, false);
  add("b", FeatureKind::kBytes, Layout::kRagged, DType::kBytes, 0, false);
  add("I", FeatureKind::kInt64, Layout::kDense, DType::kInt64, 8, true);
  add("B", FeatureKind::kBytes, Layout::kDense, DType::kBytes, 0, true);
  add("i", FeatureKind::kInt64, Layout::kPadded, DType::kInt16, 2, true);
  add("b", FeatureKind::kBytes, Layout::kPadded, DType::kBytes, 0, true);
  add("", FeatureKind::kBytes, Layout::kRecord, DType::kBytes, 0, false);
  add("r", FeatureKind::kBytes, Layout::kRaw, DType::kOpaque, 4, true);
  add("t", FeatureKind::kBytes, Layout::kTensor, DType::kBytes, 0, false);
  schema->columns.back().default_strings = {{""}};
  // Keys of their own, because numbers that obey a rule are rare.
  const std::size_t values = schema->columns.size();
  add("v", FeatureKind::kInt64, Layout::kRagged, DType::kInt64, 8, false);
  add("p", FeatureKind::kInt64, Layout::kRagged, DType::kInt64, 8, false);
  schema->rules.push_back({values,
                           {{PartitionKind::kRowSplits, values + 1, 1},
                            {PartitionKind::kUniformRowLength, values, 2}},
                           {{values, 100}}});
  return schema;
}

std::shared_ptr<const Schema> every_list() {
  auto schema = std::make_shared<Schema>();
  const auto add = [&](const char* key, FeatureKind kind, Layout layout, DType dtype,
                       std::size_t item_bytes, Section section) {
    ColumnSpec spec;
    spec.key = key;
    spec.section = section;
    spec.kind = kind;
    spec.layout = layout;
    spec.dtype = dtype;
    spec.item_bytes = item_bytes;
    schema->columns.push_back(std::move(spec));
  };
  const auto add_ragged = [&](const char* key, FeatureKind kind, DType dtype,
                              std::size_t item_bytes) {
    add(key, kind, Layout::kRagged, dtype, item_bytes, Section::kLists);
    add(key, FeatureKind::kInt64, Layout::kRagged, DType::kInt64, 8,
        Section::kStepSizes);
  };
  add("i", FeatureKind::kInt64, Layout::kRagged, DType::kInt64, 8, Section::kContext);
  add_ragged("i", FeatureKind::kInt64, DType::kInt16, 2);
  add_ragged("f", FeatureKind::kFloat, DType::kFloat32, 4);
  schema->columns[schema->columns.size() - 2].n_values = 2;
  add_ragged("b", FeatureKind::kBytes, DType::kBytes, 0);
  add("I", FeatureKind::kInt64, Layout::kPadded, DType::kInt64, 8, Section::kLists);
  add("B", FeatureKind::kBytes, Layout::kPadded, DType::kBytes, 0, Section::kLists);
  schema->columns.back().length = 2;
  schema->columns.back().truncate = true;
  return schema;
}

void check_in_order(const Array& array, std::size_t n, std::uint64_t last) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t value;
    std::memcpy(&value, array.data + i * sizeof value, sizeof value);
    if (value < before) std::abort();
    before = value;
  }
  if (static_cast<std::uint64_t>(before) != last) std::abort();
}

const auto pool = std::make_shared<BlockPool>(1 << 20);

void check_columns(const std::shared_ptr<const Schema>& schema, Bytes record) {
  // Without slack, so that sanitizers see every step too far.
  ExampleDecoder decoder(schema, Way::kReference);
  BatchBuilder builder(schema, pool);
  builder.begin(2);
  const Fault first = decoder.decode(BytesWithSlack(record), 0, &builder);
  if (first) {
    if (first.offset > record.size()) std::abort();
    (void)decoder.describe(first);
    return;
  }
  if (decoder.decode(BytesWithSlack(record), 1, &builder)) std::abort();
  const Batch batch = builder.finish(2);
  for (std::size_t c = 0; c < schema->columns.size(); ++c) {
    const Column& column = batch.columns[c];
    const ColumnSpec& spec = schema->columns[c];
    if (spec.layout == Layout::kRagged) {
      check_in_order(column.row_splits, 3, column.n_values / spec.n_values);
    }
    if (column.n_values % 2 != 0) std::abort();  // both rows hold the same
  }
}

// Columns that each have a feature of their own.
std::shared_ptr<const Schema> distinct_features() {
  auto schema = std::make_shared<Schema>(*every_column());
  auto& columns = schema->columns;
  schema->rules.clear();
  std::vector<std::string> keys;
  std::erase_if(columns, [&](const ColumnSpec& spec) {
    const bool is_known = std::find(keys.begin(), keys.end(), spec.key) != keys.end();
    keys.push_back(spec.key);
    return is_known || spec.layout == Layout::kRecord;
  });
  for (const char* key : {"x", "a_key_of_more_than_twenty_two_bytes"}) {
    for (const FeatureKind kind : {FeatureKind::kInt64, FeatureKind::kFloat}) {
      ColumnSpec spec;
      spec.key = key + std::string(kind_name(kind));
      spec.kind = kind;
      spec.dtype = kind == FeatureKind::kInt64 ? DType::kInt64 : DType::kFloat32;
      spec.item_bytes = kind == FeatureKind::kInt64 ? 8 : 4;
      spec.default_values = std::vector<std::uint8_t>(spec.item_bytes);
      columns.push_back(spec);
    }
  }
  return schema;
}

// Cuts `data` into records: each begins with its size, in two bytes.
std::vector<Bytes> cut(Bytes data) {
  std::vector<Bytes> records;
  while (data.size() >= 2 && records.size() < 16) {
    const std::size_t size =
        std::min<std::size_t>(data[0] + 256u * data[1], data.size() - 2);
    records.push_back(data.subspan(2, size));
    data = data.subspan(2 + size);
  }
  return records;
}

}  // namespace
}  // namespace fastrec

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fastrec;
  static const auto features = every_column();
  static const auto lists = every_list();
  const Bytes record(data, size);
  check_columns(features, record);
  check_columns(lists, record);
  Survey survey;
  (void)survey.add(record);
  static const auto distinct = distinct_features();
  for (const std::vector<Bytes>& records :
       {std::vector<Bytes>{record, record}, cut(record)}) {
    if (!testing::is_same_both_ways(distinct, records)) std::abort();
  }
  return 0;
}
