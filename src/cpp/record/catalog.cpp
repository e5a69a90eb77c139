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

// Successive numbers are often in the same file: tries `file` first.
Catalog::Entry Catalog::find(std::uint64_t number, std::size_t file) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), number);
  const Piece& piece = pieces_[static_cast<std::size_t>(end - ends_.begin())];
  const std::uint64_t within = number - (*end - piece.count);
  number = piece.table ? (*piece.table)[within] : piece.first + within * piece.stride;
  std::uint64_t row = 0;
  if (has_rows()) {
    const auto record_end = std::ranges::upper_bound(row_ends_, number);
    row = number - (record_end == row_ends_.begin() ? 0 : record_end[-1]);
    number = static_cast<std::uint64_t>(record_end - row_ends_.begin());
  }
  if (number < indexes_->first_record(file) ||
      number >= indexes_->first_record(file + 1)) {
    file = indexes_->file_of(number);
  }
  return {file, number - indexes_->first_record(file), row};
}

std::vector<Catalog::Entry> Catalog::find_all(
    std::span<const std::uint64_t> numbers) const {
  std::vector<Entry> entries;
  entries.reserve(numbers.size());
  std::size_t file = 0;
  for (const std::uint64_t number : numbers) {
    const Entry entry = find(number, file);
    file = entry.file;
    (*indexes_)[file].prefetch(entry.record);
    entries.push_back(entry);
  }
  return entries;
}

Place Catalog::locate(std::uint64_t number) const { return place(find(number)); }

void Catalog::locate(std::span<const std::uint64_t> numbers, FrameRuns* frames) const {
  const std::vector<Entry> entries = find_all(numbers);
  frames->lengths.reserve(frames->size() + entries.size());
  for (const Entry& entry : entries) frames->add(place(entry));
}

void Catalog::locate_records(std::span<const std::uint64_t> numbers, FrameRuns* frames,
                             std::vector<RowRange>* rows) const {
  frames->clear();
  rows->clear();
  std::vector<Entry> entries = find_all(numbers);
  std::ranges::sort(entries);
  const Entry* last = nullptr;
  for (const Entry& entry : entries) {
    if (last != nullptr && last->file == entry.file && last->record == entry.record) {
      rows->back().last = entry.row;
    } else {
      frames->add(place(entry));
      rows->push_back({entry.row, entry.row});
    }
    last = &entry;
  }
}

}  // namespace fastrec
