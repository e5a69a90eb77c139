// Indexes: the indexes of all files of a dataset, in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "record/index.h"

namespace fastrec {

class Indexes {
 public:
  explicit Indexes(std::vector<Index> files) : files_(std::move(files)) {
    begins_.reserve(files_.size() + 1);
    begins_.push_back(0);
    for (const Index& file : files_) begins_.push_back(begins_.back() + file.size());
  }

  std::size_t size() const noexcept { return files_.size(); }
  const Index& operator[](std::size_t file) const noexcept { return files_[file]; }
  std::vector<Index>::const_iterator begin() const noexcept { return files_.begin(); }
  std::vector<Index>::const_iterator end() const noexcept { return files_.end(); }

  std::uint64_t n_records() const noexcept { return begins_.back(); }
  // The number in the dataset of the first record of a file, or of its end.
  std::uint64_t first_record(std::size_t file) const noexcept { return begins_[file]; }

  // The file of record `record`, which must be below n_records(). O(log files).
  std::size_t file_of(std::uint64_t record) const noexcept {
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), record);
    return static_cast<std::size_t>(after - begins_.begin()) - 1;
  }

 private:
  std::vector<Index> files_;
  std::vector<std::uint64_t> begins_;  // the total at the end
};

}  // namespace fastrec
