// libFuzzer entry: any bytes at all, read as a tf.train.Example and a SequenceExample.
//
// Every layout and kind of column reads the record; what is not refused must be a batch
// whose splits and offsets are in order, the same when it is decoded again. Both ways
// of reading give the same, whatever was read before.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "both_ways.h"
#include "example/decode.h"
#include "example/infer.h"

namespace fastrec {
namespace {

ColumnSpec column_of(std::string key, FeatureKind kind, Layout layout, DType dtype,
                     std::size_t item_bytes) {
  ColumnSpec spec;
  spec.key = std::move(key);
  spec.kind = kind;
  spec.layout = layout;
  spec.dtype = dtype;
  spec.item_bytes = item_bytes;
  return spec;
}

// The same column, which has zeros or an empty string where its feature is missing.
ColumnSpec with_default(ColumnSpec spec) {
  if (spec.dtype == DType::kBytes) {
    spec.default_strings = {{""}};
  } else {
    spec.default_values = std::vector<std::uint8_t>(spec.item_bytes);
  }
  return spec;
}

std::shared_ptr<const Schema> every_column() {
  using enum FeatureKind;
  using enum Layout;
  auto schema = std::make_shared<Schema>();
  auto& columns = schema->columns;
  columns = {
      column_of("i", kInt64, kRagged, DType::kInt64, 8),
      column_of("i", kInt64, kRagged, DType::kInt16, 2),
      column_of("f", kFloat, kRagged, DType::kFloat32, 4),
      column_of("f", kFloat, kRagged, DType::kFloat16, 2),
      column_of("b", kBytes, kRagged, DType::kBytes, 0),
      with_default(column_of("I", kInt64, kDense, DType::kInt64, 8)),
      with_default(column_of("B", kBytes, kDense, DType::kBytes, 0)),
      with_default(column_of("i", kInt64, kPadded, DType::kInt16, 2)),
      with_default(column_of("b", kBytes, kPadded, DType::kBytes, 0)),
      column_of("", kBytes, kRecord, DType::kBytes, 0),
      with_default(column_of("r", kBytes, kRaw, DType::kOpaque, 4)),
      with_default(column_of("t", kBytes, kTensor, DType::kBytes, 0)),
  };
  // Keys of their own, because numbers that obey a rule are rare.
  const std::size_t values = columns.size();
  columns.push_back(column_of("v", kInt64, kRagged, DType::kInt64, 8));
  columns.push_back(column_of("p", kInt64, kRagged, DType::kInt64, 8));
  schema->rules.push_back({values,
                           {{PartitionKind::kRowSplits, values + 1, 1},
                            {PartitionKind::kUniformRowLength, values, 2}},
                           {{values, 100}}});
  return schema;
}

std::shared_ptr<const Schema> every_list() {
  using enum FeatureKind;
  auto schema = std::make_shared<Schema>();
  auto& columns = schema->columns;
  const auto add = [&](Section section, ColumnSpec spec) {
    spec.section = section;
    columns.push_back(std::move(spec));
  };
  const auto add_ragged = [&](const char* key, FeatureKind kind, DType dtype,
                              std::size_t item_bytes) {
    add(Section::kLists, column_of(key, kind, Layout::kRagged, dtype, item_bytes));
    add(Section::kStepSizes, column_of(key, kInt64, Layout::kRagged, DType::kInt64, 8));
  };
  add(Section::kContext, column_of("i", kInt64, Layout::kRagged, DType::kInt64, 8));
  add_ragged("i", kInt64, DType::kInt16, 2);
  add_ragged("f", kFloat, DType::kFloat32, 4);
  columns[columns.size() - 2].n_values = 2;
  add_ragged("b", kBytes, DType::kBytes, 0);
  add(Section::kLists, column_of("I", kInt64, Layout::kPadded, DType::kInt64, 8));
  add(Section::kLists, column_of("B", kBytes, Layout::kPadded, DType::kBytes, 0));
  columns.back().length = 2;
  columns.back().truncate = true;
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
      const bool is_int = kind == FeatureKind::kInt64;
      columns.push_back(with_default(
          column_of(key + std::string(kind_name(kind)), kind, Layout::kDense,
                    is_int ? DType::kInt64 : DType::kFloat32, is_int ? 8 : 4)));
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
  Survey survey(100);
  (void)survey.add(record);
  static const auto distinct = distinct_features();
  for (const std::vector<Bytes>& records :
       {std::vector<Bytes>{record, record}, cut(record)}) {
    if (!testing::is_same_both_ways(distinct, records)) std::abort();
  }
  return 0;
}
