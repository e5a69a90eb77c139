#include "record/catalog.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace fastrec {

Catalog::Catalog(std::shared_ptr<const Indexes> indexes, std::vector<Piece> pieces)
    : indexes_(std::move(indexes)), pieces_(std::move(pieces)) {
  if (pieces_.empty()) pieces_.push_back({.count = n_records()});

  const auto check = [&](std::uint64_t record) {
    if (record < n_records()) return;
    throw std::out_of_range("record " + std::to_string(record) +
                            " is out of range: the files have " +
                            std::to_string(n_records()) + " records");
  };
  for (const Piece& piece : pieces_) {
    if (piece.table) {
      for (const std::uint64_t record : *piece.table) check(record);
    } else if (piece.count != 0) {
      // The two ends bound the records in between, unless the sequence wraps around.
      const std::uint64_t n_strides = piece.count - 1;
      const std::uint64_t length = std::min(piece.stride, 0 - piece.stride);
      const bool wraps = length != 0 && n_strides > n_records() / length;
      check(piece.first);
      check(wraps ? ~std::uint64_t{0} : piece.first + n_strides * piece.stride);
    }
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + piece.count);
  }
}

// The place of record `record` of this catalog, without its frame. Successive records
// are often in the same file: tries `file` first.
Place Catalog::find(std::uint64_t record, std::size_t file) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), record);
  const Piece& piece = pieces_[static_cast<std::size_t>(end - ends_.begin())];
  const std::uint64_t within = record - (*end - piece.count);
  const std::uint64_t number =
      piece.table ? (*piece.table)[within] : piece.first + within * piece.stride;
  if (number < indexes_->first_record(file) ||
      number >= indexes_->first_record(file + 1)) {
    file = indexes_->file_of(number);
  }
  return {file, number - indexes_->first_record(file), {}, indexes_.get()};
}

Place Catalog::locate(std::uint64_t record) const {
  Place place = find(record);
  place.frame = (*indexes_)[place.file].frame(place.record);
  return place;
}

void Catalog::locate(std::span<const std::uint64_t> records, FrameRuns* frames) const {
  struct Entry {
    std::size_t file;
    std::uint64_t record;  // in the file
  };
  std::vector<Entry> entries;
  entries.reserve(records.size());
  std::size_t file = 0;
  for (const std::uint64_t record : records) {
    const Place place = find(record, file);
    file = place.file;
    (*indexes_)[file].prefetch(place.record);
    entries.push_back({file, place.record});
  }
  frames->lengths.reserve(frames->size() + entries.size());
  for (const Entry& entry : entries) {
    const Frame frame = (*indexes_)[entry.file].frame(entry.record);
    frames->add({entry.file, entry.record, frame, indexes_.get()});
  }
}

}  // namespace fastrec
