// libFuzzer entry: a byte and a run (runs.h) of records of any bytes, read as tf.train.Examples.
//
// Goal: every layout and kind of column accepts or rejects a record; accepted records
// make a batch with consistent splits and offsets; both ways of decoding agree,
// whatever was read before. Method: mutations keep the lengths of the messages correct
// (mutate.h), so that they reach the values; the fast way reads all records in sequence,
// since it learns from them.

#include <algorithm>
#include <string>
#include <vector>

#include "check_records.h"
#include "mutate.h"

namespace fastrec::testing {
namespace {

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
  };
  // Separate keys, because numbers that satisfy a rule are rare.
  const std::size_t values = columns.size();
  columns.push_back(column_of("v", kInt64, kRagged, DType::kInt64, 8));
  columns.push_back(column_of("p", kInt64, kRagged, DType::kInt64, 8));
  schema->rules.push_back({values,
                           {{PartitionKind::kRowSplits, values + 1, 1},
                            {PartitionKind::kUniformRowLength, values, 2}},
                           {{values, 100}}});
  return schema;
}

// Columns with one feature each, as the fast path requires.
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

}  // namespace
}  // namespace fastrec::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fastrec;
  static testing::CheckRecords records(testing::every_column(),
                                       testing::distinct_features());
  records.check({data, size});
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace fastrec;
  testing::Mutator mutator(seed);
  return testing::replace_input(mutator.choice_and_messages({data, size}), data,
                                max_size);
}
