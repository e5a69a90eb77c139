// Catalog: record number in the dataset -> file, record in that file, and frame.
//
// Records are numbered from 0 through all files in order. A catalog may select records:
// its own numbers then index the concatenation of its pieces, each of which is an
// arithmetic sequence of record numbers or a table.
//
// A record may have any number of rows, such as the steps of an episode. Then rows are
// numbered and selected in place of records.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "record/frame_runs.h"
#include "record/indexes.h"

namespace fastrec {

// A part of a selection of records.
struct Piece {
  std::uint64_t count = 0;
  // Element i is record first + i * stride, modulo 2^64, or table[i].
  std::uint64_t first = 0;
  std::uint64_t stride = 1;
  std::shared_ptr<const std::vector<std::uint64_t>> table = nullptr;
};

class Catalog {
 public:
  // No pieces select all records. If `row_ends` is not empty, it has the end of the rows
  // of each record. Throws std::out_of_range if a piece has a number that is out of
  // range.
  explicit Catalog(std::shared_ptr<const Indexes> indexes,
                   std::vector<Piece> pieces = {},
                   std::vector<std::uint64_t> row_ends = {});
  explicit Catalog(std::vector<Index> indexes, std::vector<Piece> pieces = {},
                   std::vector<std::uint64_t> row_ends = {})
      : Catalog(std::make_shared<const Indexes>(std::move(indexes)), std::move(pieces),
                std::move(row_ends)) {}

  std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }

  // `number` must be below size(). O(log files + log pieces).
  Place locate(std::uint64_t number) const;

  // Appends the frames of `numbers`, each below size(), in any order. O(log files)
  // each; prefetches their index entries.
  void locate(std::span<const std::uint64_t> numbers, FrameRuns* frames) const;

  // Whether records have rows.
  bool has_rows() const noexcept { return !row_ends_.empty(); }

  // Sets `*frames` to the frame of each record that has any of `numbers`, once, in file
  // order, and `*rows` to the range of these rows in each.
  void locate_records(std::span<const std::uint64_t> numbers, FrameRuns* frames,
                      std::vector<RowRange>* rows) const;

 private:
  struct Entry {
    std::size_t file = 0;
    std::uint64_t record = 0;  // in the file
    std::uint64_t row = 0;     // in the record

    auto operator<=>(const Entry&) const = default;
  };

  std::uint64_t n_numbers() const noexcept {
    return has_rows() ? row_ends_.back() : indexes_->n_records();
  }
  Entry find(std::uint64_t number, std::size_t file = 0) const;
  std::vector<Entry> find_all(std::span<const std::uint64_t> numbers) const;
  Place place(const Entry& entry) const {
    const Frame frame = (*indexes_)[entry.file].frame(entry.record);
    return {entry.file, entry.record, frame, indexes_.get()};
  }

  std::shared_ptr<const Indexes> indexes_;
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> row_ends_;
  std::vector<std::uint64_t> ends_;  // end of each piece, in numbers of this catalog
};

}  // namespace fastrec
