#include "decode/fastpath.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "base/random.h"
#include "wire/plain.h"

namespace fastrec {
namespace {

// The number of keys that identify the order of a record.
constexpr std::size_t kSignatureKeys = 2;

// Plans to keep; fewer if records have very many features.
constexpr std::size_t kPlansMax = 64;
constexpr std::size_t kPlanColumnsMax = 16384;  // of all plans together

// A plan that keeps failing is learned again less and less often.
constexpr std::uint32_t kSurprisesMax = 1023;

// Unread entries to compare with those of the record when a plan is extended.
constexpr std::size_t kSearchedEntries = 16;

// A number for the first keys of a record, or for fewer if these cannot be read.
std::uint64_t signature_of(Bytes features) {
  const std::uint8_t* p = features.data();
  const std::uint8_t* const end = p + features.size();
  std::uint64_t signature = 0;
  for (std::size_t i = 0; i < kSignatureKeys && p != end; ++i) {
    Bytes key, feature;
    p = read_plain_entry(p, end, &key, &feature);
    if (p == nullptr) break;
    signature = std::rotl(signature, 1) ^ KeyTable::hash(key);
  }
  return signature;
}

}  // namespace

FastPath::FastPath(const Schema& schema) : lookup_(schema) {
  const std::size_t n_columns = schema.columns.size();
  for (std::uint32_t column = 0; column < n_columns; ++column) {
    no_plan_.absent.push_back(column);
  }
  plans_.resize(std::clamp<std::size_t>(kPlanColumnsMax / std::bit_ceil(n_columns), 4,
                                        kPlansMax));
}

bool FastPath::decode(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
                      BatchBuilder* batch) {
  return record_back_off_.attempt([&] { return read(record, row, decoder, batch); });
}

bool FastPath::decode_pair(BytesWithSlack first, BytesWithSlack second, std::size_t row,
                           BatchBuilder* batch) {
  const Plan& plan = *last_plan_;
  if (!plan.is_for_pairs || !pair_back_off_.tries_next()) return false;
  Bytes features[2];
  const auto run_of = [&](std::size_t i) {
    const Bytes bytes = features[i];
    return PlanRun{bytes.data(), bytes.data() + bytes.size(), row + i, batch};
  };
  const bool is_read =
      find_plain_field(first.bytes(), kTagOne, &features[0]) &&
      find_plain_field(second.bytes(), kTagOne, &features[1]) &&
      kernel_.run_both(plan.entries.data(), plan.entries.size(), run_of(0), run_of(1));
  pair_back_off_.report(is_read);
  if (is_read) {
    record_back_off_.report(true);
  } else {
    batch->rewind(row);
  }
  return is_read;
}

bool FastPath::read(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
                    BatchBuilder* batch) {
  Bytes features;
  if (!find_plain_field(record.bytes(), kTagOne, &features)) return false;
  const PlanRun run{features.data(), features.data() + features.size(), row, batch};
  Progress progress{.run = run, .plan = last_plan_};
  if (!run_plan(&progress)) return false;
  while (progress.run.p != run.end) {
    if (!decode_entry(features, decoder, &progress) || !run_plan(&progress)) {
      return false;
    }
  }
  if (!fill_missing(progress, *decoder)) return false;
  if (progress.plan == &no_plan_) {
    const std::uint64_t signature = signature_of(features);
    Plan& plan = plan_of(signature);
    if (plan.n_surprises++ >= plan.n_surprises_max) learn(features, signature, &plan);
  }
  return true;
}

// Decodes the entries that the plan expects. Returns false if the record had one of
// them before.
bool FastPath::run_plan(Progress* progress) {
  const std::vector<PlanEntry>& entries = progress->plan->entries;
  const std::size_t begin = progress->next;
  if (begin == entries.size()) return true;
  progress->next +=
      kernel_.run(&entries[begin], entries.size() - begin, &progress->run);
  return progress->is_in_order || mark_entries(*progress->plan, begin, progress->next);
}

// Decodes the next entry, which the kernel declined, or selects another plan. Returns
// false if the entry cannot be proven, or is the second one of its column.
bool FastPath::decode_entry(Bytes features, FeatureDecoder* decoder,
                            Progress* progress) {
  PlanRun& run = progress->run;
  const Plan& plan = *progress->plan;
  Bytes key, feature;
  const std::uint8_t* const after = read_plain_entry(run.p, run.end, &key, &feature);
  if (after == nullptr) return false;
  std::uint32_t column;
  if (progress->next < plan.keys.size() && plan.keys[progress->next] == as_text(key)) {
    column = plan.entries[progress->next++].column;
  } else {
    if (progress->is_in_order && progress->next < kSignatureKeys) {
      select_plan(features, progress);
      if (progress->plan != &plan) return true;
    }
    leave_order(progress);
    const std::size_t n_max = progress->plan == &no_plan_ ? SIZE_MAX : 1;
    if (kernel_.run_by_key(n_max, &lookup_, &run) != 0) {
      resume_after(lookup_.last, progress);
      return true;
    }
    column = lookup_.keys.find(key);
    resume_after(column, progress);
  }
  run.p = after;
  if (column == KeyTable::kNone) return true;
  return !decoder->decode(column, feature, run.row, run.batch) &&
         (progress->is_in_order || lookup_.mark(column));
}

// Selects the plan by the first keys of the record, some of which may be read already.
void FastPath::select_plan(Bytes features, Progress* progress) {
  const std::uint64_t signature = signature_of(features);
  const Plan& plan = plan_of(signature);
  const bool is_known =
      plan.signature == signature && plan.keys.size() > progress->next &&
      std::ranges::equal(std::span(plan.keys).first(progress->next),
                         std::span(progress->plan->keys).first(progress->next));
  if (is_known) {
    progress->plan = last_plan_ = &plan;
  } else {
    leave_order(progress);
    progress->plan = &no_plan_;
    progress->next = 0;
  }
}

// Makes the plan resume after the entry of `column`, or drops the plan.
void FastPath::resume_after(std::uint32_t column, Progress* progress) {
  if (progress->plan == &no_plan_) return;
  const std::uint32_t position =
      column == KeyTable::kNone ? KeyTable::kNone : progress->plan->position[column];
  if (position != KeyTable::kNone && position >= progress->next) {
    progress->next = position + 1;
  } else {
    progress->plan = &no_plan_;
    progress->next = 0;
  }
}

// From now on, columns are marked.
void FastPath::leave_order(Progress* progress) {
  if (!progress->is_in_order) return;
  progress->is_in_order = false;
  lookup_.begin_record();
  (void)mark_entries(*progress->plan, 0, progress->next);  // a plan has each once
}

bool FastPath::mark_entries(const Plan& plan, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const std::uint32_t column = plan.entries[i].column;
    if (column != KeyTable::kNone && !lookup_.mark(column)) return false;
  }
  return true;
}

// Fills the columns that the record lacks.
bool FastPath::fill_missing(const Progress& progress, const FeatureDecoder& decoder) {
  const PlanRun& run = progress.run;
  if (progress.is_in_order && progress.next == progress.plan->entries.size()) {
    return std::ranges::none_of(progress.plan->absent, [&](std::uint32_t column) {
      return bool{decoder.fill_missing(column, run.row, run.batch)};
    });
  }
  Progress ended = progress;
  leave_order(&ended);
  return lookup_.fill_missing(run.row, decoder, run.batch);
}

FastPath::Plan& FastPath::plan_of(std::uint64_t signature) {
  return plans_[multiply_high(signature, plans_.size())];
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
    p = read_plain_entry(p, end, &key, &feature);
    const std::uint32_t column = lookup_.keys.find(key);
    const auto first = earlier.keys.begin() + static_cast<std::ptrdiff_t>(next);
    const auto last = column != KeyTable::kNone
                          ? earlier.keys.end()
                          : first + static_cast<std::ptrdiff_t>(std::min(
                                        kSearchedEntries, earlier.keys.size() - next));
    const auto found = extends ? std::find(first, last, as_text(key)) : last;
    if (extends && found != last) {
      const auto position = static_cast<std::size_t>(found - earlier.keys.begin());
      for (; next < position; ++next) keep(next);
      ++next;
    } else if (extends && column != KeyTable::kNone && !earlier.position.empty() &&
               earlier.position[column] != KeyTable::kNone) {
      // The order is another one: only that of this record counts.
      extends = false;
      plan->entries.clear();
      plan->keys.clear();
      next = 0;
      p = features.data();
      continue;
    }
    plan->entries.push_back(column != KeyTable::kNone ? lookup_.columns[column]
                                                      : skipped_entry(key));
    plan->keys.emplace_back(as_text(key));
  }
  for (; extends && next < earlier.entries.size(); ++next) keep(next);

  plan->position.assign(lookup_.columns.size(), KeyTable::kNone);
  for (std::uint32_t i = 0; i < plan->entries.size(); ++i) {
    const std::uint32_t column = plan->entries[i].column;
    if (column != KeyTable::kNone) plan->position[column] = i;
  }
  for (std::uint32_t column = 0; column < lookup_.columns.size(); ++column) {
    if (plan->position[column] == KeyTable::kNone) plan->absent.push_back(column);
  }
  plan->is_for_pairs =
      plan->absent.empty() && std::ranges::none_of(plan->entries, [](auto& entry) {
        return entry.form == EntryForm::kUnknown;
      });
}

}  // namespace fastrec
