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

// The record number in the dataset of record `record` of this catalog.
std::uint64_t Catalog::source_record(std::uint64_t record) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), record);
  const Piece& piece = pieces_[static_cast<std::size_t>(end - ends_.begin())];
  const std::uint64_t within = record - (*end - piece.count);
  return piece.table ? (*piece.table)[within] : piece.first + within * piece.stride;
}

Place Catalog::locate(std::uint64_t record) const {
  const std::uint64_t number = source_record(record);
  const std::size_t file = indexes_->file_of(number);
  const std::uint64_t within = number - indexes_->first_record(file);
  return {file, within, (*indexes_)[file].frame(within), indexes_.get()};
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
    const std::uint64_t number = source_record(record);
    // Successive records are often in the same file.
    if (number < indexes_->first_record(file) ||
        number >= indexes_->first_record(file + 1)) {
      file = indexes_->file_of(number);
    }
    const std::uint64_t within = number - indexes_->first_record(file);
    (*indexes_)[file].prefetch(within);
    entries.push_back({file, within});
  }
  frames->lengths.reserve(frames->size() + entries.size());
  for (const Entry& entry : entries) {
    const Frame frame = (*indexes_)[entry.file].frame(entry.record);
    frames->add({entry.file, entry.record, frame, indexes_.get()});
  }
}

}  // namespace fastrec
