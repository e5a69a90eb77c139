// Catalog: record number in the data set -> file, record in that file, and frame.
//
// Records are numbered from 0 through all files in their order.
#pragma once

#include <cstdint>
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

class Catalog {
 public:
  // One index per file, in the order of the files.
  explicit Catalog(std::vector<Index> indexes);

  std::uint64_t size() const noexcept { return begins_.back(); }

  // `record` must be below size(). O(log files).
  Place locate(std::uint64_t record) const;

  // The places of records [first, first + count), appended to `*places`. O(log files
  // + count).
  void locate_range(std::uint64_t first, std::uint64_t count,
                    std::vector<Place>* places) const;

  // The places of `records`, each below size() and in any order, appended to `*places`.
  // O(log files) each, and the index is fetched from memory for many at once.
  void locate_all(std::span<const std::uint64_t> records,
                  std::vector<Place>* places) const;

 private:
  std::size_t file_of(std::uint64_t record) const;

  std::vector<Index> indexes_;
  std::vector<std::uint64_t> begins_;  // of each file, and the number of records
};

}  // namespace fastrec
