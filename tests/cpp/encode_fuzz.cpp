// libFuzzer entry: any bytes, which choose rows to encode.
//
// Goal: both ways of decoding (both_ways.h) read what the encoders write, with every bit
// of every value, and the encoder of columns writes the bytes of the encoder of rows.
// Method: the first byte selects Examples, SequenceExamples or columns; the others choose
// keys, kinds, numbers of values, and values. Records are exact allocations, so that
// AddressSanitizer detects a write past the measured size.

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "any_columns.h"
#include "both_ways.h"
#include "check_columns.h"
#include "choices.h"

namespace fastrec::testing {
namespace {

// A key of each length that readers treat differently, for each kind.
constexpr std::size_t kKeyBytes[] = {1, 22, 54, 70};
constexpr FeatureKind kKinds[] = {FeatureKind::kBytes, FeatureKind::kFloat,
                                  FeatureKind::kInt64};

using Content = std::vector<std::uint8_t>;

template <typename T>
void append(const std::vector<T>& values, Content* content) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  content->insert(content->end(), bytes, bytes + values.size() * sizeof(T));
}

void append_int(std::int64_t value, Content* content) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
  content->insert(content->end(), bytes, bytes + sizeof value);
}

// The values of one feature or step.
struct Values {
  std::vector<std::string> memory;
  std::vector<Bytes> strings;
  std::vector<float> floats;
  std::vector<std::int64_t> ints;

  std::int64_t size() const {
    return static_cast<std::int64_t>(strings.size() + floats.size() + ints.size());
  }
};

Values values_of(FeatureKind kind, Choices* choices) {
  constexpr std::size_t kSizes[] = {0, 1, 1, 1, 2, 3, 9, 40};
  Values values;
  std::size_t n = kSizes[choices->below(8)];
  if (kind == FeatureKind::kBytes) values.memory.reserve(n);
  for (; n > 0; --n) {
    if (kind == FeatureKind::kBytes) {
      values.memory.push_back(choices->take(choices->below(256) / 2));
    } else if (kind == FeatureKind::kFloat) {
      const auto bits = static_cast<std::uint32_t>(choices->number());
      std::memcpy(&values.floats.emplace_back(), &bits, sizeof bits);
    } else {
      values.ints.push_back(static_cast<std::int64_t>(choices->number()));
    }
  }
  values.strings.reserve(values.memory.size());
  for (const std::string& string : values.memory) {
    values.strings.push_back(as_bytes(string));
  }
  return values;
}

FeatureValues feature_of(const ColumnSpec& spec, const Values& values) {
  return {as_bytes(spec.key), spec.kind, values.strings, values.floats, values.ints};
}

// Adds the content (both_ways.h) of a ragged column of one row.
void add_content(const ColumnSpec& spec, std::span<const Values> steps,
                 Content* content) {
  std::int64_t n_values = 0, end = 0;
  if (spec.kind == FeatureKind::kBytes) append_int(end, content);
  for (const Values& values : steps) {
    n_values += values.size();
    for (const Bytes string : values.strings) {
      append_int(end += static_cast<std::int64_t>(string.size()), content);
    }
  }
  for (const Values& values : steps) {
    for (const Bytes string : values.strings) {
      content->insert(content->end(), string.begin(), string.end());
    }
    append(values.floats, content);
    append(values.ints, content);
  }
  append_int(0, content);
  append_int(n_values, content);
}

void add_step_sizes(std::span<const Values> steps, Content* content) {
  for (const Values& values : steps) append_int(values.size(), content);
  append_int(0, content);
  append_int(static_cast<std::int64_t>(steps.size()), content);
}

ColumnSpec ragged(std::string key, FeatureKind kind) {
  switch (kind) {
    case FeatureKind::kBytes:
      return column_of(key, kind, Layout::kRagged, DType::kBytes, 0);
    case FeatureKind::kFloat:
      return column_of(key, kind, Layout::kRagged, DType::kFloat32, 4);
    default:
      return column_of(key, kind, Layout::kRagged, DType::kInt64, 8);
  }
}

// All kinds with keys of all lengths; with lists, also a feature list of each kind.
std::shared_ptr<const Schema> every_kind(bool has_lists) {
  auto schema = std::make_shared<Schema>();
  for (const std::size_t n : kKeyBytes) {
    for (const FeatureKind kind : kKinds) {
      const auto end = static_cast<char>('a' + static_cast<int>(kind));
      ColumnSpec spec = ragged(std::string(n - 1, 'k') + end, kind);
      if (has_lists) spec.section = Section::kContext;
      schema->columns.push_back(spec);
      if (!has_lists || n != kKeyBytes[0]) continue;
      spec.section = Section::kLists;
      schema->columns.push_back(spec);
      spec = ragged(spec.key, FeatureKind::kInt64);
      spec.section = Section::kStepSizes;
      schema->columns.push_back(spec);
    }
  }
  return schema;
}

// Decodes encoded records. Keeps the reference, because decode_any() has no state that
// an input could change.
class Reader {
 public:
  explicit Reader(bool has_lists)
      : schema_(every_kind(has_lists)),
        reference_(schema_),
        builder_(schema_, shared_pool()) {}

  const std::vector<ColumnSpec>& columns() const { return schema_->columns; }

  // Aborts unless the content of `record` is `expected`.
  void check(Bytes record, const Content& expected, bool is_fast) {
    if (!is_fast) {
      check(&reference_, &ExampleDecoder::decode_any, record, expected);
      return;
    }
    ExampleDecoder fast(schema_);
    check(&fast, &ExampleDecoder::decode, record, expected);  // learns the order
    check(&fast, &ExampleDecoder::decode, record, expected);
  }

 private:
  using Decode = Fault (ExampleDecoder::*)(BytesWithSlack, std::size_t, BatchBuilder*);

  void check(ExampleDecoder* decoder, Decode decode, Bytes record,
             const Content& expected) {
    const MutableBytes copy = buffer_.room(record.size());
    std::copy(record.begin(), record.end(), copy.begin());
    builder_.begin(1);
    if ((decoder->*decode)(BytesWithSlack(copy), 0, &builder_)) std::abort();
    found_.clear();
    append_content(builder_.finish_row(), 1, *schema_, &found_);
    if (found_ != expected) std::abort();
  }

  std::shared_ptr<const Schema> schema_;
  ExampleDecoder reference_;
  BatchBuilder builder_;
  Buffer buffer_;
  Content found_;
};

// The features of `columns` that a row has, in one of two orders.
struct Row {
  std::vector<std::vector<Values>> values;  // which the features view
  std::vector<FeatureValues> context;
  std::vector<FeatureListValues> lists;
  std::vector<std::vector<FeatureValues>> steps;
  Content content;
};

void add_list(const ColumnSpec& spec, std::size_t n_steps, Choices* choices, Row* row) {
  std::vector<Values>& steps = row->values.emplace_back();
  steps.reserve(n_steps);
  std::vector<FeatureValues>& features = row->steps.emplace_back();
  features.reserve(n_steps);
  for (; n_steps > 0; --n_steps) steps.push_back(values_of(spec.kind, choices));
  for (const Values& values : steps) features.push_back(feature_of(spec, values));
  if (!features.empty()) row->lists.push_back({as_bytes(spec.key), features});
  add_content(spec, steps, &row->content);
  add_step_sizes(steps, &row->content);
}

Row row_from(const std::vector<ColumnSpec>& columns, Choices* choices) {
  Row row;
  row.values.reserve(columns.size());
  row.context.reserve(columns.size());
  row.content.reserve(512);
  const bool is_reversed = choices->yes();
  for (const ColumnSpec& spec : columns) {
    if (spec.section == Section::kStepSizes) continue;
    const std::size_t n = choices->below(4);
    if (spec.section == Section::kLists) {
      add_list(spec, n, choices, &row);
    } else if (n == 0) {
      add_content(spec, {}, &row.content);
    } else {
      std::vector<Values>& values = row.values.emplace_back();
      values.push_back(values_of(spec.kind, choices));
      row.context.push_back(feature_of(spec, values.front()));
      add_content(spec, values, &row.content);
    }
  }
  if (is_reversed) std::reverse(row.context.begin(), row.context.end());
  return row;
}

void check_examples(Choices choices) {
  static Reader reader(false);
  static ExampleEncoder encoder;
  const bool is_fast = choices.yes();
  const Row row = row_from(reader.columns(), &choices);
  Content record(encoder.measure(row.context));
  encoder.store(record.data());
  reader.check(record, row.content, is_fast);
}

void check_sequences(Choices choices) {
  static Reader reader(true);
  static ExampleEncoder encoder;
  const bool is_fast = choices.yes();
  const Row row = row_from(reader.columns(), &choices);
  Content record(encoder.measure(row.context, row.lists));
  encoder.store(record.data());
  reader.check(record, row.content, is_fast);
}

void check_columns(Choices choices) {
  const std::size_t n_rows = below(choices, 6);
  const std::size_t step = 1 + below(choices, 3);
  std::vector<Owned> columns;
  for (std::size_t n = below(choices, 5); columns.size() < n;) {
    std::string key(below(choices, 2) ? below(choices, 10) : below(choices, 80), 'k');
    columns.push_back(
        any_column(choices, n_rows, key + std::to_string(columns.size())));
  }
  std::vector<ColumnValues> views;
  for (Owned& owned : columns) {
    owned.column.values = owned.memory;
    views.push_back(owned.column);
  }
  const BatchEncoder encoder(views, n_rows);
  BatchEncoder::Tile tile;
  for (std::size_t begin = 0; begin < n_rows;) {
    encoder.load(begin, n_rows, step, &tile);
    for (std::size_t i = 0; i < tile.n_rows(); ++i, begin += step) {
      const std::uint64_t size = encoder.measure(i, &tile);
      Content out(size + BatchEncoder::kSlackBytes);
      encoder.store(i, tile, out.data());
      out.resize(size);
      if (as_text(out) != row_of(columns, begin)) std::abort();
    }
  }
}

}  // namespace
}  // namespace fastrec::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fastrec::testing;
  if (size == 0) return 0;
  const Choices choices({data + 1, size - 1});
  switch (data[0] % 3) {
    case 0:
      check_examples(choices);
      break;
    case 1:
      check_sequences(choices);
      break;
    default:
      check_columns(choices);
  }
  return 0;
}
