// The fast ways of reading, compared with the reference.
//
// Goal: whatever the records are, and whatever came before them, both ways give the
// same columns or the same fault. Method: runs of records of one writer or of several,
// plain or odd, Examples or SequenceExamples, in an order of features that stays,
// wavers or is new each time, some with damaged bytes; they are read both ways.
// FASTREC_TEST_RUNS asks for more runs than the default, FASTREC_TEST_SEED for others.

#include "decode/fastpath.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "both_ways.h"
#include "records.h"

namespace fastrec {
namespace {

using testing::field_of;
using testing::varint_of;

class Writer {
 public:
  explicit Writer(std::uint64_t seed) : random_(seed) {
    is_sequence_ = is_likely(0.3);
    // Of very many keys, some have the same hash.
    const std::size_t n_columns = is_likely(0.02) ? 300 : 1 + below(12);
    auto schema = std::make_shared<Schema>();
    for (std::size_t i = 0; i < n_columns; ++i) {
      schema->columns.push_back(column(i));
      order_.push_back(schema->columns.back().key);
      if (is_sequence_ && is_likely(0.6)) make_list(schema.get());
    }
    if (is_likely(0.1)) {
      ColumnSpec record;
      record.layout = Layout::kRecord;
      record.dtype = DType::kBytes;
      record.kind = FeatureKind::kBytes;
      schema->columns.push_back(record);
    }
    schema_ = schema;
    const std::size_t n_others = is_likely(0.5) ? below(6) : 0;
    for (std::size_t i = 0; i < n_others; ++i) {
      order_.push_back("other" + std::to_string(i));
    }
    std::shuffle(order_.begin(), order_.end(), random_);
    shuffled_ = is_likely(0.3) ? 1 : is_likely(0.3) ? 0.1 : 0;
    for (std::size_t n = is_likely(0.3) ? 2 + below(4) : 0; n > 0; --n) {
      std::shuffle(order_.begin(), order_.end(), random_);
      orders_.push_back(order_);
    }
    odd_ = is_likely(0.5) ? 0 : is_likely(0.5) ? 0.01 : 0.2;
    damaged_ = is_likely(0.7) ? 0 : 0.05;
  }

  const std::shared_ptr<const Schema>& schema() const { return schema_; }

  std::string record() {
    if (!orders_.empty()) order_ = orders_[below(orders_.size())];
    if (is_likely(shuffled_)) std::shuffle(order_.begin(), order_.end(), random_);
    std::string maps[2];  // features or context, and feature lists
    for (const std::string& key : order_) {
      if (is_likely(odd_)) continue;
      std::string& entries = maps[is_list(key)];
      entries += entry(key);
      if (is_likely(odd_ / 4)) entries += entry(key);
    }
    std::string record = field_of(1, maps[0]);
    if (is_sequence_) record += field_of(2, maps[1]);
    if (is_likely(odd_ / 4)) record += field_of(1, entry(order_.front()));
    if (is_likely(damaged_) && !record.empty()) {
      record[below(record.size())] = static_cast<char>(below(256));
    }
    if (is_likely(damaged_ / 4)) record.resize(below(record.size() + 1));
    return record;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  bool is_likely(double p) { return std::uniform_real_distribution<>()(random_) < p; }

  bool is_list(const std::string& key) const {
    return std::ranges::any_of(schema_->columns, [&](const ColumnSpec& spec) {
      return spec.key == key && spec.section == Section::kLists;
    });
  }

  // Makes a feature list of the last column of `schema`.
  void make_list(Schema* schema) {
    ColumnSpec& values = schema->columns.back();
    values.section = Section::kLists;
    if (values.layout == Layout::kRaw) {
      values.dtype = DType::kBytes;
      values.item_bytes = 0;
      values.n_values = 1;
    }
    values.default_values.reset();
    values.default_strings.reset();
    values.layout = below(2) == 0 ? Layout::kPadded : Layout::kRagged;
    if (below(4) == 0) values.length = below(6);
    values.truncate = below(2) == 0;
    values.is_required = below(4) == 0;
    if (values.layout == Layout::kPadded) {
      // Steps of floats are copied in blocks of several sizes.
      if (values.dtype == DType::kFloat32 && below(2) == 0) values.n_values = below(34);
      return;
    }
    ColumnSpec sizes = values;
    sizes.section = Section::kStepSizes;
    sizes.kind = FeatureKind::kInt64;
    sizes.dtype = DType::kInt64;
    sizes.item_bytes = 8;
    sizes.n_values = 1;
    schema->columns.push_back(sizes);
  }

  void set_dtype(ColumnSpec* spec, std::initializer_list<DType> dtypes,
                 std::initializer_list<std::size_t> item_bytes) {
    const std::size_t i = below(2) == 0 ? 0 : below(dtypes.size());
    spec->dtype = dtypes.begin()[i];
    spec->item_bytes = item_bytes.begin()[i];
  }

  ColumnSpec column(std::size_t i) {
    ColumnSpec spec;
    if (is_sequence_) spec.section = Section::kContext;
    spec.key = std::string(below(4) == 0 ? 16 + below(50) : below(12), 'k');
    spec.key += std::to_string(i);
    spec.kind = static_cast<FeatureKind>(1 + below(3));
    spec.layout = below(2) == 0   ? Layout::kDense
                  : below(2) == 0 ? Layout::kRagged
                                  : Layout::kPadded;
    if (spec.layout == Layout::kPadded && below(2) == 0) spec.length = below(6);
    spec.truncate = below(2) == 0;
    spec.n_values = below(4) == 0 ? 1 + below(3) : 1;
    switch (spec.kind) {
      case FeatureKind::kInt64:
        set_dtype(&spec,
                  {DType::kInt64, DType::kInt32, DType::kInt16, DType::kUint8,
                   DType::kUint64, DType::kBool},
                  {8, 4, 2, 1, 8, 1});
        break;
      case FeatureKind::kFloat:
        set_dtype(&spec,
                  {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16},
                  {4, 8, 2, 2});
        break;
      default:
        spec.dtype = DType::kBytes;
        if (spec.layout == Layout::kDense && below(2) == 0) {
          spec.layout = Layout::kRaw;
          spec.dtype = DType::kUint8;
          spec.item_bytes = 1;
          spec.n_values = below(2) == 0 ? 3 : 200;
        }
    }
    if (spec.has_row_splits() || below(2) == 0) return spec;
    if (spec.dtype == DType::kBytes) {
      spec.default_strings = std::vector<std::string>(spec.n_values, "none");
    } else {
      spec.default_values = std::vector<std::uint8_t>(spec.row_bytes(), 7);
    }
    return spec;
  }

  std::string bytes_of(std::size_t n) {
    std::string bytes;
    while (bytes.size() < n) bytes += static_cast<char>(random_());
    return bytes;
  }

  // Continues the last varint for up to 10 more bytes, which is more than it may have.
  void make_overlong(std::string* values) {
    values->back() = static_cast<char>(values->back() | 0x80);
    values->append(below(10), '\x80');
    *values += '\0';
  }

  // Strings have `n_bytes`, or any number.
  std::string list_of(FeatureKind kind, std::size_t n,
                      std::optional<std::size_t> n_bytes) {
    std::string values;
    const bool is_packed = !is_likely(odd_);
    const std::uint64_t small = below(4) == 0 ? 1 : 0x7fff;  // also for bool
    for (std::size_t i = 0; i < n; ++i) {
      if (kind == FeatureKind::kBytes) {
        const std::size_t n_any = below(8) == 0 ? below(200) : below(16);
        values += field_of(1, bytes_of(n_bytes.value_or(n_any)));
      } else if (kind == FeatureKind::kFloat) {
        if (!is_packed) values += '\x0d';
        testing::append_le(&values, static_cast<std::uint32_t>(random_()));
      } else {
        const auto value = random_() >> below(64);
        if (!is_packed) values += '\x08';
        values += varint_of(below(16) == 0 ? value : value & small);
        if (below(64) == 0) make_overlong(&values);
      }
    }
    if (is_likely(odd_ / 4) && !values.empty()) values.pop_back();  // cuts the last one
    return kind == FeatureKind::kBytes || !is_packed ? values : field_of(1, values);
  }

  // A feature that `spec` reads, nearly always.
  std::string feature_of(const ColumnSpec& spec) {
    FeatureKind kind = spec.kind;
    const bool is_step = spec.section == Section::kLists;
    std::size_t n = spec.layout == Layout::kRaw ? 1 : spec.n_values;
    if (is_step ? spec.layout == Layout::kRagged : spec.has_row_splits()) {
      n *= below(below(4) == 0 ? 100 : 4);
    }
    if (is_likely(odd_)) kind = static_cast<FeatureKind>(1 + below(3));
    if (is_likely(odd_)) n = below(200);
    if (is_likely(odd_)) return "";
    std::optional<std::size_t> n_bytes;
    if (spec.layout == Layout::kRaw) n_bytes = spec.n_values;
    return field_of(static_cast<unsigned>(kind), list_of(kind, n, n_bytes));
  }

  std::string entry(const std::string& key) {
    ColumnSpec spec;  // of a key that no column reads
    spec.kind = FeatureKind::kBytes;
    const auto found = std::ranges::find(schema_->columns, key, &ColumnSpec::key);
    if (found != schema_->columns.end()) spec = *found;
    std::string feature;
    if (spec.section == Section::kLists) {
      for (std::size_t step = below(6); step > 0; --step) {
        feature += field_of(1, feature_of(spec));
        if (is_likely(odd_)) feature += field_of(2, "unknown");
      }
    } else {
      feature = feature_of(spec);
    }
    std::string entry = field_of(1, key) + field_of(2, feature);
    if (is_likely(odd_)) entry = field_of(2, feature) + field_of(1, key);
    if (is_likely(odd_)) entry += field_of(3, "unknown");
    return field_of(1, entry);
  }

  std::mt19937_64 random_;
  std::shared_ptr<const Schema> schema_;
  std::vector<std::string> order_;
  std::vector<std::vector<std::string>> orders_;  // of several writers, if any
  bool is_sequence_ = false;
  double shuffled_ = 0, odd_ = 0, damaged_ = 0;  // how likely
};

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const asked = std::getenv(variable);
  return asked == nullptr ? otherwise : std::strtoull(asked, nullptr, 10);
}

TEST(FastPath, GivesWhatTheReferenceGives) {
  constexpr std::size_t kRecords = 64;
  const std::uint64_t first = number_from("FASTREC_TEST_SEED", 0);
  const std::uint64_t n_runs = number_from("FASTREC_TEST_RUNS", 250);
  for (std::uint64_t seed = first; seed < first + n_runs; ++seed) {
    Writer writer(seed);
    std::vector<std::string> records;
    for (std::size_t i = 0; i < kRecords; ++i) records.push_back(writer.record());
    const std::vector<Bytes> views = [&] {
      std::vector<Bytes> found;
      for (const std::string& record : records) found.push_back(as_bytes(record));
      return found;
    }();
    ASSERT_TRUE(testing::is_same_both_ways(writer.schema(), views)) << "seed " << seed;
  }
}

// Steps that almost have the header of the plain ones, after plain ones and before
// them.
TEST(FastPath, ReadsStepsOfOtherHeadersAsTheReferenceDoes) {
  const auto field_of_ones = [](unsigned number, std::size_t n) {
    return field_of(number, std::string(n, '\1'));
  };
  for (const auto kind :
       {FeatureKind::kBytes, FeatureKind::kFloat, FeatureKind::kInt64}) {
    const auto number = static_cast<unsigned>(kind);
    const std::string value = kind == FeatureKind::kFloat ? "1234" : "\5";
    const std::string plain = field_of(1, field_of(number, field_of(1, value)));
    const std::string others[] = {
        field_of(1, ""),
        // An empty step and an unknown field, together like a step of -2 bytes.
        field_of(1, "") + field_of_ones(number, 254),
        field_of(1, "") + field_of_ones(number, 127),
        field_of(1, field_of(number, "")),
        field_of(1, field_of(number, field_of(1, ""))),
        field_of(1, field_of(number, field_of(1, value) + field_of(1, value))),
        field_of(1, field_of(number, field_of(1, value)) + field_of_ones(9, 3)),
        field_of(1, field_of(number, field_of(1, std::string(128, '1')))),
        field_of(1, field_of(number % 3 + 1, field_of(1, value))),
        field_of_ones(2, 4),
        std::string("\x0a\x03\x0a", 3),
        std::string("\x0a\x83\x00\x0a\x01\x01", 6),
    };
    for (const auto layout : {Layout::kPadded, Layout::kRagged}) {
      auto schema = std::make_shared<Schema>();
      ColumnSpec spec;
      spec.key = "k";
      spec.section = Section::kLists;
      spec.kind = kind;
      spec.layout = layout;
      spec.dtype = kind == FeatureKind::kBytes   ? DType::kBytes
                   : kind == FeatureKind::kFloat ? DType::kFloat32
                                                 : DType::kInt64;
      spec.item_bytes = kind == FeatureKind::kBytes ? 0 : value.size() == 4 ? 4 : 8;
      schema->columns.push_back(spec);
      if (layout == Layout::kRagged) {
        spec.section = Section::kStepSizes;
        spec.kind = FeatureKind::kInt64;
        spec.dtype = DType::kInt64;
        spec.item_bytes = 8;
        schema->columns.push_back(spec);
      }
      for (const std::string& other : others) {
        const std::string list = plain + plain + other + plain;
        const std::string record = field_of(2, testing::entry_of("k", list));
        EXPECT_TRUE(testing::is_same_both_ways(schema, {as_bytes(record)}))
            << "kind " << number << ", step " << &other - others;
      }
      std::string many;
      for (int i = 0; i < 5000; ++i) many += plain;
      const std::string record = field_of(2, testing::entry_of("k", many));
      EXPECT_TRUE(testing::is_same_both_ways(schema, {as_bytes(record)}));
    }
  }
}

}  // namespace
}  // namespace fastrec
