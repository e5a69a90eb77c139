// libFuzzer entry: a byte and a run (runs.h) of records of any bytes, read as SequenceExamples.
//
// Goal and method are those of example_fuzz.cpp, with columns of a context and of
// feature lists.

#include <string>
#include <utility>
#include <vector>

#include "check_records.h"
#include "mutate.h"

namespace fastrec::testing {
namespace {

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
  add(Section::kContext,
      with_default(column_of("f", kFloat, Layout::kDense, DType::kFloat32, 4)));
  add_ragged("i", kInt64, DType::kInt16, 2);
  add_ragged("f", kFloat, DType::kFloat32, 4);
  columns[columns.size() - 2].n_values = 2;
  add_ragged("b", kBytes, DType::kBytes, 0);
  add(Section::kLists, column_of("I", kInt64, Layout::kPadded, DType::kInt64, 8));
  add(Section::kLists, column_of("F", kFloat, Layout::kPadded, DType::kFloat32, 4));
  columns.back().n_values = 2;
  add(Section::kLists, column_of("B", kBytes, Layout::kPadded, DType::kBytes, 0));
  columns.back().length = 2;
  columns.back().truncate = true;
  return schema;
}

}  // namespace
}  // namespace fastrec::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fastrec;
  static testing::CheckRecords records(testing::every_list(), testing::every_list());
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
