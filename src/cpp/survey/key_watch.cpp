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

}  // namespace

KeyWatch::Watched::Watched(std::shared_ptr<const Schema> of)
    : schema(std::move(of)),
      keys(*schema, false),
      list_keys(*schema, true),
      found(keys.table().size(), true),
      list_found(list_keys.table().size(), true) {
  for (std::size_t c = 0; c < schema->columns.size(); ++c) {
    const ColumnSpec& spec = schema->columns[c];
    if (!may_be_missing(spec)) continue;
    const bool is_list = spec.section == Section::kLists;
    (is_list ? list_found : found)[(is_list ? list_keys : keys).key_of(c)] = false;
  }
  n_absent =
      static_cast<std::size_t>(std::count(found.begin(), found.end(), false) +
                               std::count(list_found.begin(), list_found.end(), false));
}

bool KeyWatch::Watched::is_absent(std::size_t column) const {
  const ColumnSpec& spec = schema->columns[column];
  if (!may_be_missing(spec)) return false;
  return spec.section == Section::kLists ? !list_found[list_keys.key_of(column)]
                                         : !found[keys.key_of(column)];
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
    watched.names = names_in(record, Section::kFeatures);
    watched.list_names = names_in(record, Section::kLists);
  }
  const auto note = [&](const ColumnKeys& keys, std::vector<bool>* found, Bytes key) {
    const std::uint32_t number = keys.table().find(key);
    if (number == KeyTable::kNone || (*found)[number]) return;
    (*found)[number] = true;
    --watched.n_absent;
  };
  JoinedMessages joined;
  const auto on_feature = [&](Bytes key, Bytes) {
    note(watched.keys, &watched.found, key);
  };
  // A record that was decoded has no fault here.
  if (watched.list_found.empty()) {
    (void)walk_features(record, &joined, on_feature);
  } else {
    (void)walk_maps<2>(record, &joined,
                       [&](std::uint32_t field, Bytes key, Bytes value) {
                         field == 1 ? on_feature(key, value)
                                    : note(watched.list_keys, &watched.list_found, key);
                       });
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
      if (!watched.is_absent(c)) continue;
      const bool is_list = watched.schema->columns[c].section == Section::kLists;
      result.push_back({s, c, std::min(watched.n_records, kRecords),
                        is_list ? watched.list_names : watched.names});
    }
  }
  return result;
}

}  // namespace fastrec
