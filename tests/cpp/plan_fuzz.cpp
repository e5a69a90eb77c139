// libFuzzer entry: any bytes, which choose records in the form that writers produce.
//
// Goal: all plan kernels (decode/plan.h) decode the same entries of a record, to the
// same values, and stop at the same entry; the fast path, which learns plans, gives
// what the reference decoder gives. Method: each byte adds an entry to a record, in its
// plain form or in one that almost has its header; others damage a byte. The first byte
// selects the check, and the kernel that is compared with the portable one. For the
// kernels, the first record is the plan and every further one is read, in an exact
// allocation whose slack continues with the record itself, as if the next entries were
// there. For the fast path, all records are read in sequence.

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "both_ways.h"
#include "check_columns.h"
#include "choices.h"
#include "decode/plan.h"
#include "records.h"

namespace fastrec::testing {
namespace {

// A column of each form of entry. Two keys differ in their last byte, and one fills the
// second half of a header.
std::shared_ptr<const Schema> every_form() {
  using enum FeatureKind;
  using enum Layout;
  auto schema = std::make_shared<Schema>();
  auto& columns = schema->columns;
  columns = {
      with_default(column_of("i", kInt64, kDense, DType::kInt64, 8)),
      with_default(column_of("f", kFloat, kDense, DType::kFloat32, 4)),
      with_default(column_of("block", kFloat, kDense, DType::kFloat32, 4)),
      with_default(column_of("raw", kBytes, kRaw, DType::kOpaque, 4)),
      with_default(column_of("string", kBytes, kDense, DType::kBytes, 0)),
      with_default(column_of("short", kInt64, kDense, DType::kInt16, 2)),
      column_of("ints1", kInt64, kRagged, DType::kInt64, 8),
      column_of("ints2", kInt64, kRagged, DType::kUint8, 1),
      column_of("floats", kFloat, kPadded, DType::kFloat32, 4),
      with_default(column_of(std::string(40, 'k'), kInt64, kDense, DType::kInt64, 8)),
      column_of("strings", kBytes, kRagged, DType::kBytes, 0),
  };
  columns[2].n_values = 3;
  columns[2] = with_default(columns[2]);
  return schema;
}

const std::shared_ptr<const Schema>& schema() {
  static const std::shared_ptr<const Schema> made = every_form();
  return made;
}

std::string list_of(FeatureKind kind, std::size_t n, Choices* choices) {
  std::string values;
  for (; n > 0; --n) {
    if (kind == FeatureKind::kBytes) {
      append_field(&values, 1,
                   choices->take(choices->below(4) == 3 ? choices->below(256) : 4u));
    } else if (kind == FeatureKind::kFloat) {
      append_le(&values, static_cast<std::uint32_t>(choices->number()));
    } else {
      append_varint(&values, choices->number());
    }
  }
  return kind == FeatureKind::kBytes ? values : field_of(1, values);
}

// An entry of a column, or of a key that no column reads.
std::string entry_from(Choices* choices) {
  const auto& columns = schema()->columns;
  const std::size_t choice = choices->below(16);
  std::string key = "other" + std::to_string(choice);
  FeatureKind kind = FeatureKind::kInt64;
  std::size_t n = 1;
  if (choice < columns.size()) {
    const ColumnSpec& spec = columns[choice];
    key = spec.key;
    kind = spec.kind;
    n = spec.layout == Layout::kRaw ? 1 : spec.n_values;
    if (spec.has_row_splits()) n = choices->below(6);
  }
  switch (choices->below(16)) {
    case 12:
      kind = static_cast<FeatureKind>(1 + choices->below(3));
      break;
    case 13:
      n = choices->below(40);
      break;
    case 14:
      return entry_of(key, "");
    case 15:
      return field_of(1, field_of(2, field_of(1, "")) + field_of(1, key));
    default:
      break;
  }
  return entry_of(key,
                  field_of(static_cast<unsigned>(kind), list_of(kind, n, choices)));
}

std::string features_from(Choices* choices) {
  std::string features;
  const std::size_t n = choices->below(16);
  for (std::size_t i = 0; i < n && !choices->is_over(); ++i) {
    features += entry_from(choices);
  }
  if (choices->below(8) == 7 && !features.empty()) {
    features[choices->below(256) % features.size()] =
        static_cast<char>(choices->below(256));
  }
  return features;
}

// The entries of a record, each key once.
std::vector<PlanEntry> plan_of(Bytes features) {
  std::vector<PlanEntry> entries;
  std::vector<std::string_view> keys;
  FieldReader fields(features);
  Bytes entry;
  while (fields.next_message(1, &entry)) {
    FieldReader parts(entry);
    Bytes key;
    if (!parts.next_message(1, &key)) continue;
    if (std::ranges::find(keys, as_text(key)) != keys.end()) continue;
    keys.push_back(as_text(key));
    const auto& columns = schema()->columns;
    const auto spec = std::ranges::find(columns, as_text(key), &ColumnSpec::key);
    entries.push_back(spec == columns.end()
                          ? skipped_entry(key)
                          : fastrec::entry_of(*spec, static_cast<std::uint32_t>(
                                                         spec - columns.begin())));
  }
  return entries;
}

struct Outcome {
  std::size_t n_planned = 0, n_found = 0;
  std::ptrdiff_t end = 0;
  std::uint32_t last = 0;
  std::vector<bool> has;  // by column
  std::vector<std::uint8_t> content;
  bool operator==(const Outcome&) const = default;
};

class Kernels {
 public:
  Kernels()
      : decoder_(schema()), builder_(schema(), shared_pool()), lookup_(*schema()) {}

  // Runs down `plan`, and reads the entries after it by key.
  Outcome run(const PlanKernel& kernel, const std::vector<PlanEntry>& plan,
              Bytes features, std::size_t n_by_key_max) {
    Outcome outcome;
    lookup_.begin_record();
    builder_.begin(1);
    PlanRun run{features.data(), features.data() + features.size(), 0, &builder_};
    outcome.n_planned = kernel.run(plan.data(), plan.size(), &run);
    for (std::size_t i = 0; i < outcome.n_planned; ++i) {
      if (plan[i].column != KeyTable::kNone) lookup_.mark(plan[i].column);
    }
    if (run.p != run.end) {
      outcome.n_found = kernel.run_by_key(n_by_key_max, &lookup_, &run);
    }
    outcome.end = run.p - features.data();
    if (outcome.n_found != 0) outcome.last = lookup_.last;
    for (std::uint32_t i = 0; i < lookup_.columns.size(); ++i) {
      outcome.has.push_back(lookup_.has(i));
    }
    if (!lookup_.fill_missing(0, decoder_, &builder_)) std::abort();
    outcome.content = content_of(builder_.finish_row(), 1, *schema());
    return outcome;
  }

  // Two records at once must give what one at a time gives, or be declined.
  void check_both(const PlanKernel& kernel, const std::vector<PlanEntry>& plan,
                  Bytes first, Bytes second) {
    std::vector<std::uint8_t> contents[2];
    for (const bool is_both : {true, false}) {
      builder_.begin(2);
      PlanRun runs[] = {{first.data(), first.data() + first.size(), 0, &builder_},
                        {second.data(), second.data() + second.size(), 1, &builder_}};
      if (is_both) {
        if (!kernel.run_both(plan.data(), plan.size(), runs[0], runs[1])) return;
      } else {
        for (PlanRun& run : runs) {
          const std::size_t n =
              plan_kernels().back().run(plan.data(), plan.size(), &run);
          if (n != plan.size() || run.p != run.end) std::abort();
        }
      }
      for (std::size_t row = 0; row < 2; ++row) {
        for (std::size_t i = 0; i < lookup_.columns.size(); ++i) {
          const bool is_planned =
              std::ranges::find(plan, i, &PlanEntry::column) != plan.end();
          if (!is_planned && decoder_.fill_missing(i, row, &builder_)) std::abort();
        }
      }
      contents[is_both] = content_of(builder_.finish(2), *schema());
    }
    if (contents[0] != contents[1]) std::abort();
  }

 private:
  FeatureDecoder decoder_;
  BatchBuilder builder_;
  ColumnLookup lookup_;
};

// A copy of a record with slack, which repeats the record.
class WithSlack {
 public:
  explicit WithSlack(const std::string& record)
      : room_(record.size() + 2 * kSlackBytes), size_(record.size()) {
    std::uint8_t* const begin = room_.data() + kSlackBytes;
    std::ranges::copy(record, begin);
    for (std::size_t at = 0; size_ != 0 && at < kSlackBytes; ++at) {
      begin[size_ + at] = begin[at];
    }
  }
  Bytes bytes() const { return {room_.data() + kSlackBytes, size_}; }

 private:
  static constexpr std::size_t kSlackBytes = BytesWithSlack::kSlackBytes;
  std::vector<std::uint8_t> room_;
  std::size_t size_;
};

void check_kernels(const PlanKernel& kernel, const std::vector<std::string>& records,
                   std::size_t n_by_key_max) {
  static Kernels kernels;
  const std::vector<PlanEntry> plan = plan_of(as_bytes(records[0]));
  for (std::size_t i = records.size() > 1; i < records.size(); ++i) {
    const std::string& record = records[i];
    const WithSlack copy(record), before(records[i > 0 ? i - 1 : 0]);
    const Bytes features = copy.bytes();
    const Outcome expected =
        kernels.run(plan_kernels().back(), plan, features, n_by_key_max);
    if (expected.end < 0 || expected.end > std::ssize(record)) std::abort();
    if (kernels.run(kernel, plan, features, n_by_key_max) != expected) std::abort();
    kernels.check_both(kernel, plan, before.bytes(), features);
  }
}

void check_both_ways(const std::vector<std::string>& records) {
  static BothWays both_ways(schema());
  std::vector<std::string> messages;
  for (const std::string& features : records) messages.push_back(field_of(1, features));
  std::vector<Bytes> views;
  for (const std::string& message : messages) views.push_back(as_bytes(message));
  if (!both_ways.is_same(views)) std::abort();
}

}  // namespace
}  // namespace fastrec::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fastrec::testing;
  constexpr std::size_t kMaxRecords = 4;
  if (size == 0) return 0;
  Choices choices({data + 1, size - 1});
  std::vector<std::string> records;
  while (records.size() < kMaxRecords && !choices.is_over()) {
    records.push_back(features_from(&choices));
  }
  if (records.empty()) return 0;
  if (data[0] % 2 == 0) {
    check_both_ways(records);
  } else {
    const auto kernels = fastrec::plan_kernels();
    check_kernels(kernels[data[0] / 4 % kernels.size()], records,
                  data[0] / 2 % 2 == 0 ? SIZE_MAX : 1);
  }
  return 0;
}
