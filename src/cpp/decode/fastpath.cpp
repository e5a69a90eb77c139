#include "decode/fastpath.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/random.h"
#include "wire/plain.h"

namespace fastrec {
namespace {

// Where this many records in a row could not be proven, the next ones are not tried.
constexpr std::size_t kFailuresMax = 8;
constexpr std::size_t kDeclined = 1024;

// Plans that are kept: fewer where records have very many features.
constexpr std::size_t kPlansMax = 64;
constexpr std::size_t kPlanColumnsMax = 16384;  // of all plans together

// A plan that keeps failing is learned again ever less often.
constexpr std::uint32_t kSurprisesMax = 1023;

// Unwanted entries that are compared with those of the record when a plan is extended.
constexpr std::size_t kSearchedEntries = 16;

constexpr std::size_t kShortKeyBytes = 64;

// Reads the next entry below `end`. Returns where it ends, or nullptr.
const std::uint8_t* read_entry(const std::uint8_t* p, const std::uint8_t* end,
                               Bytes* key, Bytes* feature) {
  Bytes entry;
  p = read_plain_field(p, end, kTagOne, &entry);
  return p != nullptr && find_plain_entry(entry, key, feature) ? p : nullptr;
}

// A number for the first two keys of a record. Where these cannot be read, it is
// another.
std::uint64_t signature_of(Bytes features) {
  const std::uint8_t* p = features.data();
  const std::uint8_t* const end = p + features.size();
  std::uint64_t signature = 0;
  for (int i = 0; i < 2 && p != nullptr && p != end; ++i) {
    Bytes entry, key;
    p = read_plain_field(p, end, kTagOne, &entry);
    if (p == nullptr) break;
    if (read_plain_field(entry.data(), entry.data() + entry.size(), kTagOne, &key) !=
        nullptr) {
      signature = std::rotl(signature, 1) ^ KeyTable::hash(key);
    }
  }
  return signature;
}

// Steps over the entry at `p`, whose key no column has, if its key and value are all of
// it, in lengths of one byte. Returns where it ends, or nullptr.
const std::uint8_t* skip_short_entry(const std::uint8_t* p, const std::uint8_t* end) {
  const std::size_t n_entry = p[1], n_key = p[3];
  if (n_key >= kShortKeyBytes || n_entry < n_key + 4) return nullptr;
  const std::uint8_t* const value = p + 4 + n_key;
  if (p[0] != kTagOne || p[2] != kTagOne || value[0] != kTagTwo || n_entry >= 0x80 ||
      value[1] != n_entry - n_key - 4 || end - p < std::ptrdiff_t(2 + n_entry)) {
    return nullptr;
  }
  return p + 2 + n_entry;
}

}  // namespace

bool FastPath::can_read(const Schema& schema) {
  std::vector<std::string> keys;
  for (const ColumnSpec& spec : schema.columns) {
    const bool is_stacked_string = spec.n_slots > 1 && spec.dtype == DType::kBytes;
    if (spec.section != Section::kFeatures || spec.layout == Layout::kRecord ||
        is_stacked_string) {
      return false;
    }
    keys.push_back(spec.key);
  }
  std::sort(keys.begin(), keys.end());
  return !keys.empty() && std::adjacent_find(keys.begin(), keys.end()) == keys.end();
}

FastPath::FastPath(const Schema& schema)
    : run_plan_(plan_kernel().run), marks_(schema.columns.size()) {
  for (std::uint32_t column = 0; column < schema.columns.size(); ++column) {
    keys_.insert(schema.columns[column].key);
    columns_.push_back(entry_of(schema.columns[column], column));
  }
  plans_.resize(std::clamp<std::size_t>(
      kPlanColumnsMax / std::bit_ceil(columns_.size()), 4, kPlansMax));
}

bool FastPath::decode(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
                      BatchBuilder* batch) {
  if (n_declined_ > 0) {
    --n_declined_;
    return false;
  }
  if (read(record, row, decoder, batch)) {
    n_failures_ = 0;
    return true;
  }
  if (++n_failures_ == kFailuresMax) {
    n_failures_ = 0;
    n_declined_ = kDeclined;
  }
  return false;
}

bool FastPath::read(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
                    BatchBuilder* batch) {
  Bytes features;
  if (!find_plain_field(record.bytes(), kTagOne, &features)) return false;
  const std::uint64_t signature = signature_of(features);
  Plan& plan = plans_[multiply_high(signature, plans_.size())];
  const bool is_known = plan.signature == signature && !plan.entries.empty();
  const PlanRun run{features.data(), features.data() + features.size(), row, batch};
  Progress progress{.run = run, .plan = is_known ? &plan : &no_plan_};
  if (!is_known) leave_order(&progress);
  progress.is_surprising = !is_known;
  const std::vector<PlanEntry>& entries = progress.plan->entries;
  while (true) {
    if (progress.next < entries.size()) {
      const std::size_t n = run_plan_(&entries[progress.next],
                                      entries.size() - progress.next, &progress.run);
      if (!progress.is_in_order &&
          !mark_entries(*progress.plan, progress.next, progress.next + n)) {
        return false;
      }
      progress.next += n;
    }
    if (progress.run.p == progress.run.end) break;
    std::uint32_t column;
    if (!decode_entry(decoder, &progress, &column) || !place(column, &progress)) {
      return false;
    }
  }
  if (!fill_missing(progress, decoder)) return false;
  if (progress.is_surprising && plan.n_surprises++ >= plan.n_surprises_max) {
    learn(features, signature, &plan);
  }
  return true;
}

// Decodes the next entry, whatever it is, and sets `*column` to its column or kNone.
// False if it cannot be proven.
bool FastPath::decode_entry(FeatureDecoder* decoder, Progress* progress,
                            std::uint32_t* column) const {
  PlanRun& run = progress->run;
  // The kernel has just declined the next entry of the plan.
  const std::vector<PlanEntry>& entries = progress->plan->entries;
  const std::uint32_t declined =
      progress->next < entries.size() ? entries[progress->next].column : kNone;
  if (const std::size_t n = run.p[3]; run.p[1] < 0x80 && n < kShortKeyBytes) {
    *column = keys_.candidate({run.p + 4, n});
    if (*column == kNone) {
      if (const std::uint8_t* after = skip_short_entry(run.p, run.end)) {
        run.p = after;
        return true;
      }
    } else if (*column != declined && columns_[*column].form != EntryForm::kUnknown &&
               run_plan_(&columns_[*column], 1, &run) == 1) {
      return true;
    }
  }
  Bytes key, feature;
  run.p = read_entry(run.p, run.end, &key, &feature);
  if (run.p == nullptr) return false;
  *column = keys_.find(key, declined);
  return *column == kNone || !decoder->decode(*column, feature, run.row, run.batch);
}

// Finds the place in the plan of the entry of `column` that was decoded by itself.
// False if the record had one before.
bool FastPath::place(std::uint32_t column, Progress* progress) {
  const Plan& plan = *progress->plan;
  if (progress->next < plan.entries.size() &&
      plan.entries[progress->next].column == column) {
    ++progress->next;
    return progress->is_in_order || column == kNone || mark(column);
  }
  leave_order(progress);
  const std::uint32_t position =
      column == kNone || plan.position.empty() ? kNone : plan.position[column];
  if (position == kNone || position < progress->next) {
    progress->is_surprising = true;
  } else {
    progress->next = position + 1;
  }
  return column == kNone || mark(column);
}

// From now on, columns are marked.
void FastPath::leave_order(Progress* progress) {
  if (!progress->is_in_order) return;
  progress->is_in_order = false;
  ++n_marked_records_;
  n_marked_ = 0;
  (void)mark_entries(*progress->plan, 0, progress->next);  // a plan has each once
}

// False if the record had the column before.
bool FastPath::mark(std::uint32_t column) {
  ++n_marked_;
  return std::exchange(marks_[column], n_marked_records_) != n_marked_records_;
}

bool FastPath::mark_entries(const Plan& plan, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const std::uint32_t column = plan.entries[i].column;
    if (column != kNone && !mark(column)) return false;
  }
  return true;
}

// Fills the columns that the record lacks.
bool FastPath::fill_missing(const Progress& progress, FeatureDecoder* decoder) {
  const PlanRun& run = progress.run;
  if (progress.is_in_order && progress.next == progress.plan->entries.size()) {
    return std::ranges::none_of(progress.plan->absent, [&](std::uint32_t column) {
      return bool{decoder->fill_missing(column, run.row, run.batch)};
    });
  }
  Progress ended = progress;
  leave_order(&ended);
  if (n_marked_ == columns_.size()) return true;
  for (std::uint32_t column = 0; column < columns_.size(); ++column) {
    if (marks_[column] != n_marked_records_ &&
        decoder->fill_missing(column, run.row, run.batch)) {
      return false;
    }
  }
  return true;
}

// Makes `*plan` fit a record of `features`, which has the plain form. Entries of an
// earlier plan that the record lacks stay, unless the order is another.
void FastPath::learn(Bytes features, std::uint64_t signature, Plan* plan) const {
  Plan earlier = std::exchange(*plan, {});
  plan->signature = signature;
  plan->n_surprises_max = std::min(2 * earlier.n_surprises_max + 1, kSurprisesMax);
  if (earlier.signature != signature) earlier = {};
  const auto keep = [&](std::size_t i) {
    plan->entries.push_back(earlier.entries[i]);
    plan->keys.push_back(earlier.keys[i]);
  };
  std::size_t next = 0;  // in the earlier plan
  bool extends = true;   // the earlier plan
  const std::uint8_t* p = features.data();
  const std::uint8_t* const end = p + features.size();
  for (Bytes key, feature; p != end;) {
    p = read_entry(p, end, &key, &feature);
    const std::uint32_t column = keys_.find(key);
    const auto first = earlier.keys.begin() + static_cast<std::ptrdiff_t>(next);
    const auto last = column != kNone
                          ? earlier.keys.end()
                          : first + static_cast<std::ptrdiff_t>(std::min(
                                        kSearchedEntries, earlier.keys.size() - next));
    const auto found = extends ? std::find(first, last, as_text(key)) : last;
    if (extends && found != last) {
      const auto position = static_cast<std::size_t>(found - earlier.keys.begin());
      for (; next < position; ++next) keep(next);
      ++next;
    } else if (extends && column != kNone && !earlier.position.empty() &&
               earlier.position[column] != kNone) {
      // The order is another one: only that of this record counts.
      extends = false;
      plan->entries.clear();
      plan->keys.clear();
      next = 0;
      p = features.data();
      continue;
    }
    plan->entries.push_back(column != kNone ? columns_[column] : skipped_entry(key));
    plan->keys.emplace_back(as_text(key));
  }
  for (; extends && next < earlier.entries.size(); ++next) keep(next);

  plan->position.assign(columns_.size(), kNone);
  for (std::uint32_t i = 0; i < plan->entries.size(); ++i) {
    if (plan->entries[i].column != kNone) plan->position[plan->entries[i].column] = i;
  }
  for (std::uint32_t column = 0; column < columns_.size(); ++column) {
    if (plan->position[column] == kNone) plan->absent.push_back(column);
  }
}

}  // namespace fastrec
