#include "survey/key_watch.h"

#include <algorithm>
#include <utility>

#include "survey/advice.h"
#include "wire/walk.h"

namespace fastrec {
namespace {

// Whether records without the feature can be decoded.
bool may_be_missing(const ColumnSpec& spec) {
  if (spec.layout == Layout::kRecord || spec.section == Section::kStepSizes) {
    return false;
  }
  if (spec.section == Section::kLists) return !spec.is_required;
  return spec.has_row_splits() || spec.default_values || spec.default_strings;
}

bool is_list(const ColumnSpec& spec) { return spec.section == Section::kLists; }

}  // namespace

KeyWatch::Watched::Watched(std::shared_ptr<const Schema> of)
    : schema(std::move(of)), keys{{*schema, false}, {*schema, true}} {
  for (std::size_t c = 0; c < schema->columns.size(); ++c) {
    const ColumnSpec& spec = schema->columns[c];
    if (!may_be_missing(spec)) continue;
    WatchedKeys& of_section = keys[is_list(spec)];
    of_section.found[of_section.keys.key_of(c)] = false;
  }
  for (const WatchedKeys& of_section : keys) {
    n_absent += static_cast<std::size_t>(std::ranges::count(of_section.found, false));
  }
}

KeyWatch::KeyWatch(std::span<const std::shared_ptr<const Schema>> schemas) {
  for (const std::shared_ptr<const Schema>& schema : schemas) {
    const std::vector<ColumnSpec>& columns = schema->columns;
    watched_.emplace_back();
    if (!schema->source.empty() ||
        std::none_of(columns.begin(), columns.end(), may_be_missing)) {
      continue;
    }
    watched_.back() = std::make_unique<Watched>(schema);
    ++n_open_;
    ++n_pending_;
  }
}

void KeyWatch::close(Watched* watched) {
  if (!watched->is_open) return;
  watched->is_open = false;
  --n_open_;
}

void KeyWatch::add(std::size_t schema, Bytes record) {
  const std::lock_guard lock(mutex_);
  if (watched_[schema] == nullptr || !watched_[schema]->is_open) return;
  Watched& watched = *watched_[schema];
  if (watched.n_records++ == 0) {
    watched.keys[0].names = names_in(record, Section::kFeatures);
    watched.keys[1].names = names_in(record, Section::kLists);
  }
  const auto note = [&](std::uint32_t field, Bytes key, Bytes) {
    WatchedKeys& keys = watched.keys[field - 1];
    const std::uint32_t number = keys.keys.table().find(key);
    if (number == KeyTable::kNone || keys.found[number]) return;
    keys.found[number] = true;
    --watched.n_absent;
  };
  JoinedMessages joined;
  // A record that was decoded has no fault here.
  if (watched.keys[1].found.empty()) {
    (void)walk_maps<1>(record, &joined, note);
  } else {
    (void)walk_maps<2>(record, &joined, note);
  }
  if (watched.n_absent == 0) close(&watched);
}

std::vector<AbsentColumn> KeyWatch::take_absent(
    std::uint64_t n_delivered, std::optional<std::uint64_t> epoch_records) {
  const std::lock_guard lock(mutex_);
  std::vector<AbsentColumn> result;
  for (std::size_t s = 0; s < watched_.size(); ++s) {
    if (watched_[s] == nullptr) continue;
    Watched& watched = *watched_[s];
    if (epoch_records || (watched.n_records >= kRecords && n_delivered >= kRecords)) {
      close(&watched);
    }
    if (watched.is_open || watched.is_reported) continue;
    watched.is_reported = true;
    --n_pending_;
    if (watched.n_records == 0) continue;
    if (watched.n_records < kRecords && *epoch_records < kMinRecords) continue;
    for (std::size_t c = 0; c < watched.schema->columns.size(); ++c) {
      const ColumnSpec& spec = watched.schema->columns[c];
      const WatchedKeys& keys = watched.keys[is_list(spec)];
      if (!may_be_missing(spec) || keys.found[keys.keys.key_of(c)]) continue;
      result.push_back({s, c, std::min(watched.n_records, kRecords), keys.names});
    }
  }
  return result;
}

}  // namespace fastrec
