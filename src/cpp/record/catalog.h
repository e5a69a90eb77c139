// Catalog: record number in the data set -> file, record in that file, and frame.
//
// Records are numbered from 0 through all files in their order. A catalog may be a
// choice of them: then its own numbers count through pieces, each of which is an
// arithmetic sequence of those numbers, or a table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "record/index.h"

namespace fastrec {

// Where one record of a data set is.
struct Place {
  std::size_t file = 0;      // index of the file
  std::uint64_t record = 0;  // index of the record in that file
  Frame frame;
};

// Records of all files that are chosen one after another.
struct Piece {
  std::uint64_t count = 0;
  // The i-th is record first + i * stride, in arithmetic modulo 2^64, or table[i].
  std::uint64_t first = 0;
  std::uint64_t stride = 1;
  std::shared_ptr<const std::vector<std::uint64_t>> table = nullptr;
};

class Catalog {
 public:
  // One index per file, in the order of the files. Without pieces, all records. Throws
  // std::out_of_range if a piece names a record that does not exist.
  explicit Catalog(std::vector<Index> indexes, std::vector<Piece> pieces = {});

  std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }

  // `record` must be below size(). O(log files + log pieces).
  Place locate(std::uint64_t record) const;

  // The places of records [first, first + count), appended to `*places`.
  void locate_range(std::uint64_t first, std::uint64_t count,
                    std::vector<Place>* places) const;

  // The places of `records`, each below size() and in any order, appended to `*places`.
  // O(log files) each, and the index is fetched from memory for many at once.
  void locate_all(std::span<const std::uint64_t> records,
                  std::vector<Place>* places) const;

 private:
  std::uint64_t n_records() const noexcept { return begins_.back(); }
  std::uint64_t chosen(std::uint64_t record) const;
  std::size_t file_of(std::uint64_t record) const;

  std::vector<Index> indexes_;
  std::vector<std::uint64_t> begins_;  // of each file, and the number of records
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> ends_;  // of each piece, in numbers of this catalog
};

}  // namespace fastrec
