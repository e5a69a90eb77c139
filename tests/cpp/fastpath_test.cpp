// The fast path beside the reference.
//
// Goal: whatever the records are, and whatever came before them, both ways give the
// same columns or the same fault. Method: runs of records of one writer, plain or odd,
// in an order of features that stays, wavers or is new each time, some with damaged
// bytes; they are read both ways. FASTREC_TEST_RUNS asks for more runs than the
// default.

#include "example/fastpath.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
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
    const std::size_t n_columns = 1 + below(12);
    auto schema = std::make_shared<Schema>();
    for (std::size_t i = 0; i < n_columns; ++i) schema->columns.push_back(column(i));
    schema_ = schema;
    for (const ColumnSpec& spec : schema->columns) order_.push_back(spec.key);
    const std::size_t n_others = is_likely(0.5) ? below(6) : 0;
    for (std::size_t i = 0; i < n_others; ++i) {
      order_.push_back("other" + std::to_string(i));
    }
    std::shuffle(order_.begin(), order_.end(), random_);
    shuffled_ = is_likely(0.3) ? 1 : is_likely(0.3) ? 0.1 : 0;
    odd_ = is_likely(0.5) ? 0 : is_likely(0.5) ? 0.01 : 0.2;
    damaged_ = is_likely(0.7) ? 0 : 0.05;
  }

  const std::shared_ptr<const Schema>& schema() const { return schema_; }

  std::string record() {
    if (is_likely(shuffled_)) std::shuffle(order_.begin(), order_.end(), random_);
    std::string entries;
    for (const std::string& key : order_) {
      if (is_likely(odd_)) continue;
      entries += entry(key);
      if (is_likely(odd_ / 4)) entries += entry(key);
    }
    std::string record = field_of(1, entries);
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

  ColumnSpec column(std::size_t i) {
    ColumnSpec spec;
    spec.key = std::string(below(4) == 0 ? 16 + below(50) : below(12), 'k');
    spec.key += std::to_string(i);
    spec.kind = static_cast<FeatureKind>(1 + below(3));
    spec.layout = below(4) == 0 ? Layout::kRagged : Layout::kDense;
    spec.n_values = below(4) == 0 ? 1 + below(3) : 1;
    switch (spec.kind) {
      case FeatureKind::kInt64:
        spec.dtype = below(4) == 0 ? DType::kInt16 : DType::kInt64;
        spec.item_bytes = spec.dtype == DType::kInt16 ? 2 : 8;
        break;
      case FeatureKind::kFloat:
        spec.dtype = below(4) == 0 ? DType::kFloat64 : DType::kFloat32;
        spec.item_bytes = spec.dtype == DType::kFloat64 ? 8 : 4;
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
    if (spec.layout == Layout::kRagged || below(2) == 0) return spec;
    if (spec.dtype == DType::kBytes) {
      spec.default_strings = std::vector<std::string>(spec.n_values, "none");
    } else {
      spec.default_values = std::vector<std::uint8_t>(spec.row_bytes(), 7);
    }
    return spec;
  }

  std::string list_of(FeatureKind kind, std::size_t n, std::size_t n_bytes) {
    std::string values;
    const bool is_packed = !is_likely(odd_);
    for (std::size_t i = 0; i < n; ++i) {
      if (kind == FeatureKind::kBytes) {
        values += field_of(1, std::string(n_bytes, 's'));
      } else if (kind == FeatureKind::kFloat) {
        if (!is_packed) values += '\x0d';
        testing::append_le(&values, static_cast<std::uint32_t>(random_()));
      } else {
        const auto value = random_() >> below(64);
        if (!is_packed) values += '\x08';
        values += varint_of(below(8) == 0 ? value : value & 0x7fff);
      }
    }
    return kind == FeatureKind::kBytes || !is_packed ? values : field_of(1, values);
  }

  std::string entry(const std::string& key) {
    FeatureKind kind = FeatureKind::kBytes;
    std::size_t n = 1, n_bytes = below(9);
    for (const ColumnSpec& spec : schema_->columns) {
      if (spec.key != key) continue;
      kind = spec.kind;
      n = spec.layout == Layout::kDense ? spec.n_values : 1;
      if (spec.layout == Layout::kRagged) n = spec.n_values * below(4);
      if (spec.layout == Layout::kRaw) n_bytes = spec.n_values;
    }
    if (is_likely(odd_)) kind = static_cast<FeatureKind>(1 + below(3));
    if (is_likely(odd_)) n = below(200);
    std::string feature =
        field_of(static_cast<unsigned>(kind), list_of(kind, n, n_bytes));
    if (is_likely(odd_)) feature.clear();
    std::string entry = field_of(1, key) + field_of(2, feature);
    if (is_likely(odd_)) entry = field_of(2, feature) + field_of(1, key);
    if (is_likely(odd_)) entry += field_of(3, "unknown");
    return field_of(1, entry);
  }

  std::mt19937_64 random_;
  std::shared_ptr<const Schema> schema_;
  std::vector<std::string> order_;
  double shuffled_ = 0, odd_ = 0, damaged_ = 0;  // how likely
};

std::uint64_t n_runs() {
  const char* asked = std::getenv("FASTREC_TEST_RUNS");
  return asked == nullptr ? 250 : std::strtoull(asked, nullptr, 10);
}

TEST(FastPath, GivesWhatTheReferenceGives) {
  constexpr std::size_t kRecords = 64;
  for (std::uint64_t seed = 0; seed < n_runs(); ++seed) {
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

}  // namespace
}  // namespace fastrec
