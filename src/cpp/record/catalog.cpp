#include "record/catalog.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace fastrec {

Catalog::Catalog(std::shared_ptr<const Indexes> indexes, std::vector<Piece> pieces,
                 std::vector<std::uint64_t> row_ends)
    : indexes_(std::move(indexes)),
      pieces_(std::move(pieces)),
      row_ends_(std::move(row_ends)) {
  if (has_rows() && row_ends_.size() != indexes_->n_records()) {
    throw std::out_of_range("row_ends must have one element per record");
  }
  if (pieces_.empty()) pieces_.push_back({.count = n_numbers()});

  const auto check = [&](std::uint64_t number) {
    if (number < n_numbers()) return;
    const std::string noun = has_rows() ? "row" : "record";
    throw std::out_of_range(noun + " " + std::to_string(number) +
                            " is out of range: the files have " +
                            std::to_string(n_numbers()) + " " + noun + "s");
  };
  for (const Piece& piece : pieces_) {
    if (piece.table) {
      for (const std::uint64_t record : *piece.table) check(record);
    } else if (piece.count != 0) {
      // The two ends bound the records in between, unless the sequence wraps around.
      const std::uint64_t n_strides = piece.count - 1;
      const std::uint64_t length = std::min(piece.stride, 0 - piece.stride);
      const bool wraps = length != 0 && n_strides > n_numbers() / length;
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
  std::uint64_t number =
      piece.table ? (*piece.table)[within] : piece.first + within * piece.stride;
  if (has_rows()) {
    const auto of_record = std::ranges::upper_bound(row_ends_, number);
    number = static_cast<std::uint64_t>(of_record - row_ends_.begin());
  }
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

std::vector<Catalog::Entry> Catalog::entries(
    std::span<const std::uint64_t> records) const {
  std::vector<Entry> entries;
  entries.reserve(records.size());
  std::size_t file = 0;
  for (const std::uint64_t record : records) {
    const Place place = find(record, file);
    file = place.file;
    (*indexes_)[file].prefetch(place.record);
    entries.push_back({file, place.record});
  }
  return entries;
}

void Catalog::add_frames(std::span<const Entry> entries, FrameRuns* frames) const {
  frames->lengths.reserve(frames->size() + entries.size());
  for (const Entry& entry : entries) {
    const Frame frame = (*indexes_)[entry.file].frame(entry.record);
    frames->add({entry.file, entry.record, frame, indexes_.get()});
  }
}

void Catalog::locate(std::span<const std::uint64_t> records, FrameRuns* frames) const {
  add_frames(entries(records), frames);
}

void Catalog::locate_records(std::span<const std::uint64_t> rows,
                             FrameRuns* frames) const {
  std::vector<Entry> found = entries(rows);
  std::ranges::sort(found);
  const auto repeated = std::ranges::unique(found);
  found.erase(repeated.begin(), repeated.end());
  add_frames(found, frames);
}

}  // namespace fastrec
