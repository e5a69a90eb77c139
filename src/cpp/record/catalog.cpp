#include "record/catalog.h"

#include <algorithm>
#include <utility>

#include "base/prefetch.h"

namespace fastrec {

Catalog::Catalog(std::vector<Index> indexes) : indexes_(std::move(indexes)) {
  begins_.reserve(indexes_.size() + 1);
  begins_.push_back(0);
  for (const Index& index : indexes_) begins_.push_back(begins_.back() + index.size());
}

std::size_t Catalog::file_of(std::uint64_t record) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), record);
  return static_cast<std::size_t>(after - begins_.begin()) - 1;
}

Place Catalog::locate(std::uint64_t record) const {
  const std::size_t file = file_of(record);
  const std::uint64_t within = record - begins_[file];
  return {file, within, indexes_[file].frame(within)};
}

void Catalog::locate_range(std::uint64_t first, std::uint64_t count,
                           std::vector<Place>* places) const {
  if (count == 0) return;
  std::size_t file = file_of(first);
  for (std::uint64_t record = first; record < first + count; ++record) {
    while (record >= begins_[file + 1]) ++file;
    const std::uint64_t within = record - begins_[file];
    places->push_back({file, within, indexes_[file].frame(within)});
  }
}

void Catalog::locate_all(std::span<const std::uint64_t> records,
                         std::vector<Place>* places) const {
  const std::size_t n_before = places->size();
  for (const std::uint64_t record : records) {
    const std::size_t file = file_of(record);
    const std::uint64_t within = record - begins_[file];
    prefetch(&indexes_[file].offsets()[within]);
    places->push_back({file, within, {}});
  }
  for (Place& place : std::span(*places).subspan(n_before)) {
    place.frame = indexes_[place.file].frame(place.record);
  }
}

}  // namespace fastrec
