// libFuzzer entry: a byte and a run (runs.h), whose first piece is read as a schema and
// the others as records of it.
//
// Goal: no schema that Python may build, and no record, breaks the decoder; both ways of
// decoding give the same, consistent columns. Method: the first byte selects the check:
// whether the ways agree, or whether the columns of one row or of two are consistent. A
// byte of the first piece makes each choice about the schema, so that any bytes are a
// valid schema. If the first byte of another piece is 0, the rest is a record, mutated as
// a message (mutate.h); otherwise the piece provides the values of a record that matches
// the schema.

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "both_ways.h"
#include "check_columns.h"
#include "choices.h"
#include "mutate.h"
#include "records.h"
#include "runs.h"

namespace fastrec::testing {
namespace {

struct Type {
  DType dtype;
  std::size_t item_bytes;
};
constexpr std::array<Type, 9> kInts = {{{DType::kInt64, 8},
                                        {DType::kInt32, 4},
                                        {DType::kInt16, 2},
                                        {DType::kInt8, 1},
                                        {DType::kUint64, 8},
                                        {DType::kUint32, 4},
                                        {DType::kUint16, 2},
                                        {DType::kUint8, 1},
                                        {DType::kBool, 1}}};
constexpr std::array<Type, 4> kFloats = {{{DType::kFloat32, 4},
                                          {DType::kFloat64, 8},
                                          {DType::kFloat16, 2},
                                          {DType::kBfloat16, 2}}};

void set_type(ColumnSpec* spec, const Type& type) {
  spec->dtype = type.dtype;
  spec->item_bytes = type.item_bytes;
}

// A byte string that is an array, possibly big-endian.
void make_raw(ColumnSpec* spec, Choices* choices) {
  spec->layout = Layout::kRaw;
  spec->dtype = choices->yes() ? DType::kOpaque : DType::kBool;
  spec->item_bytes = 1;
  if (spec->dtype == DType::kOpaque) {
    spec->item_bytes = std::size_t{1} << choices->below(5);
    if (choices->yes()) spec->swap_bytes = spec->item_bytes;
  }
  spec->n_values = choices->below(20);
}

void make_tensor(ColumnSpec* spec, Choices* choices) {
  spec->layout = Layout::kTensor;
  if (choices->yes()) return;
  static constexpr std::pair<std::uint32_t, Type> kTypes[] = {
      {TensorReader::kString, {DType::kBytes, 0}},
      {1, {DType::kFloat32, 4}},
      {9, {DType::kInt64, 8}},
      {10, {DType::kBool, 1}}};
  const auto& [number, type] = kTypes[choices->below(4)];
  spec->tensor_dtype = number;
  set_type(spec, type);
  for (std::size_t i = choices->below(3); i > 0; --i) {
    spec->tensor_shape.push_back(static_cast<std::int64_t>(choices->below(4)));
    spec->n_values *= static_cast<std::size_t>(spec->tensor_shape.back());
  }
}

void make_numbers_or_strings(ColumnSpec* spec, Choices* choices) {
  constexpr Layout kLayouts[] = {Layout::kDense, Layout::kRagged, Layout::kPadded};
  spec->layout = kLayouts[choices->below(3)];
  if (choices->yes()) spec->n_values = 1 + choices->below(3);
  if (spec->layout == Layout::kPadded || spec->section == Section::kLists) {
    if (choices->yes())
      spec->length = choices->below(6);
    else
      spec->multiple_of = 1 + choices->below(4);
    spec->truncate = choices->yes();
  }
}

// One column; two for a ragged feature list, several for stacked features.
void add_columns(Schema* schema, bool is_sequence, Choices* choices) {
  // A key of each length that the decoder treats differently.
  static constexpr std::size_t kKeyBytes[] = {0, 1, 7, 8, 9, 22, 23, 54, 70};
  ColumnSpec spec;
  const std::size_t n_before = schema->columns.size();
  spec.key = std::string(kKeyBytes[choices->below(9)], 'k');
  if (!choices->yes()) spec.key += std::to_string(n_before);
  if (is_sequence) {
    spec.section = choices->yes() ? Section::kLists : Section::kContext;
  }
  const bool is_list = spec.section == Section::kLists;
  spec.kind = static_cast<FeatureKind>(1 + choices->below(3));
  spec.dtype = DType::kBytes;
  if (spec.kind == FeatureKind::kInt64) set_type(&spec, kInts[choices->below(9)]);
  if (spec.kind == FeatureKind::kFloat) set_type(&spec, kFloats[choices->below(4)]);
  const bool is_strings = spec.kind == FeatureKind::kBytes;
  const std::size_t form = is_strings && !is_list ? choices->below(6) : 0;
  if (form == 3)
    make_raw(&spec, choices);
  else if (form == 4)
    make_tensor(&spec, choices);
  else if (form == 5)
    spec.layout = Layout::kRecord;
  else
    make_numbers_or_strings(&spec, choices);
  if (is_list && spec.layout == Layout::kDense) spec.layout = Layout::kRagged;
  spec.is_required = is_list && choices->yes();
  if (!is_list && spec.layout != Layout::kRecord && spec.layout != Layout::kRagged &&
      choices->yes()) {
    spec = with_default(std::move(spec));
  }
  if (spec.layout == Layout::kRagged) spec.multiple_of = 1;
  if (spec.layout == Layout::kDense && choices->below(4) == 1) {
    spec.n_slots = 2 + choices->below(2);
    for (; spec.slot < spec.n_slots; ++spec.slot) {
      ColumnSpec slot = spec;
      slot.key += static_cast<char>('a' + spec.slot);
      schema->columns.push_back(std::move(slot));
    }
    return;
  }
  schema->columns.push_back(spec);
  if (!is_list || spec.layout != Layout::kRagged) return;
  ColumnSpec sizes =
      column_of(spec.key, FeatureKind::kInt64, Layout::kRagged, DType::kInt64, 8);
  sizes.section = Section::kStepSizes;
  schema->columns.push_back(std::move(sizes));
}

// Values, their partitions, and their indices.
void add_rule(Schema* schema, Choices* choices) {
  const auto add = [&](const char* key) {
    schema->columns.push_back(
        column_of(key, FeatureKind::kInt64, Layout::kRagged, DType::kInt64, 8));
    return schema->columns.size() - 1;
  };
  RowRule rule;
  rule.values = add("values");
  for (std::size_t i = choices->below(3); i > 0; --i) {
    Partition partition;
    partition.kind = static_cast<PartitionKind>(choices->below(6));
    const bool is_uniform = partition.kind == PartitionKind::kUniformRowLength;
    partition.column = is_uniform ? rule.values : add(i == 1 ? "inner" : "outer");
    partition.uniform_length = 1 + choices->below(3);
    rule.partitions.push_back(partition);
  }
  if (choices->yes()) {
    rule.indices.push_back(
        {add("indices"), static_cast<std::int64_t>(choices->below(9))});
  }
  schema->rules.push_back(std::move(rule));
}

std::shared_ptr<const Schema> schema_of(Bytes bytes) {
  constexpr std::size_t kMaxColumns = 6;
  Choices choices(bytes);
  auto schema = std::make_shared<Schema>();
  const bool is_sequence = choices.yes();
  if (!is_sequence && choices.yes()) add_rule(schema.get(), &choices);
  do {
    add_columns(schema.get(), is_sequence, &choices);
  } while (!choices.is_over() && schema->columns.size() < kMaxColumns);
  return schema;
}

std::string list_of(FeatureKind kind, std::size_t n, std::size_t n_bytes,
                    Choices* choices) {
  std::string values;
  for (std::size_t i = 0; i < n; ++i) {
    if (kind == FeatureKind::kBytes) {
      std::string value = choices->take(n_bytes);
      value.resize(n_bytes, 'v');
      append_field(&values, 1, value);
    } else if (kind == FeatureKind::kFloat) {
      append_le(&values, std::uint32_t{0x3f800000} << choices->below(2));
    } else {
      append_varint(&values,
                    std::uint64_t{choices->below(256)} << (8 * choices->below(2)));
    }
  }
  return kind == FeatureKind::kBytes ? values : field_of(1, values);
}

// A feature that matches `spec`, except that numbers may be out of range.
std::string feature_of(const ColumnSpec& spec, Choices* choices) {
  std::size_t n = spec.n_values;
  std::size_t n_bytes = choices->below(20);
  if (spec.layout == Layout::kRaw || spec.layout == Layout::kTensor) {
    n = 1;
    if (spec.layout == Layout::kRaw) n_bytes = spec.row_bytes();
  } else if (spec.section == Section::kLists ? spec.layout == Layout::kRagged
                                             : spec.has_row_splits()) {
    n *= choices->below(5);
  }
  return field_of(static_cast<unsigned>(spec.kind),
                  list_of(spec.kind, n, n_bytes, choices));
}

std::string record_of(const Schema& schema, Choices choices) {
  std::string maps[2];  // features or context, and feature lists
  const std::size_t n = schema.columns.size();
  const std::size_t first = choices.below(8);
  for (std::size_t i = 0; i < n; ++i) {
    const ColumnSpec& spec = schema.columns[(first + i) % n];
    const bool is_list = spec.section == Section::kLists;
    const bool is_absent = spec.section == Section::kStepSizes ||
                           spec.layout == Layout::kRecord || choices.below(16) == 15;
    if (is_absent) continue;
    std::string feature;
    if (is_list) {
      for (std::size_t step = choices.below(4); step > 0; --step) {
        append_field(&feature, 1, feature_of(spec, &choices));
      }
    } else {
      feature = feature_of(spec, &choices);
    }
    maps[is_list] += entry_of(spec.key, feature);
  }
  return field_of(1, maps[0]) + (maps[1].empty() ? "" : field_of(2, maps[1]));
}

// The checks of one schema, made when they are first used. Neither has state that a
// record could change.
struct Checks {
  explicit Checks(Bytes piece) : bytes(as_text(piece)), schema(schema_of(piece)) {}

  std::string bytes;  // of the schema
  std::shared_ptr<const Schema> schema;
  std::optional<CheckColumns> columns;
  std::optional<BothWays> both_ways;
};

// Most mutations leave the schema unchanged, so it is kept for the next input.
Checks& checks_of(Bytes piece) {
  static std::optional<Checks> last;
  if (!last || last->bytes != as_text(piece)) last.emplace(piece);
  return *last;
}

}  // namespace
}  // namespace fastrec::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fastrec;
  if (size == 0) return 0;
  const std::vector<Bytes> pieces = testing::pieces_of({data + 1, size - 1});
  if (pieces.size() < 2) return 0;
  testing::Checks& checks = testing::checks_of(pieces[0]);
  std::vector<std::string> records;
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i].empty()) continue;
    const bool is_record = pieces[i].front() == 0;
    records.push_back(is_record
                          ? std::string(as_text(pieces[i].subspan(1)))
                          : testing::record_of(*checks.schema,
                                               testing::Choices(pieces[i].subspan(1))));
  }
  if (records.empty()) return 0;
  if (data[0] % 2 == 1) {
    if (!checks.columns) checks.columns.emplace(checks.schema);
    (void)checks.columns->check(as_bytes(records.back()), data[0] / 2 % 2 != 0);
    return 0;
  }
  std::vector<Bytes> views;
  for (const std::string& record : records) views.push_back(as_bytes(record));
  if (!checks.both_ways) checks.both_ways.emplace(checks.schema);
  if (!checks.both_ways->is_same(views)) std::abort();
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace fastrec;
  testing::Mutator mutator(seed);
  const auto mutate = [&](const std::string& piece, std::size_t i) {
    const bool is_record = i > 0 && !piece.empty() && piece.front() == '\0';
    return is_record ? std::string(1, '\0') + mutator.message(piece.substr(1))
                     : mutator.bytes(piece);
  };
  const std::string mutated = mutator.choice_and(
      {data, size}, [&](Bytes run) { return mutator.run(run, mutate); });
  return testing::replace_input(mutated, data, max_size);
}
