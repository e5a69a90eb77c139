// Indexes: the indexes of all files of a dataset, in order, and which were found stale.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "file/file_view.h"
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
  // Whether recovery skipped a range of any file.
  bool has_gaps() const;
  // The number in the dataset of the first record of a file, or of its end.
  std::uint64_t first_record(std::size_t file) const noexcept { return begins_[file]; }

  // The file of record `record`, which must be below n_records(). O(log files).
  std::size_t file_of(std::uint64_t record) const noexcept {
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), record);
    return static_cast<std::size_t>(after - begins_.begin()) - 1;
  }

  // Whether the index of a file, which has no frame at entry `record`, is stale; if
  // not, the record is damaged. Walks a file at most once in each thread. Any thread may
  // call this. Throws like Index::is_stale().
  bool is_stale(std::size_t file, std::uint64_t record, const FileView& view) const {
    {
      const std::lock_guard lock(mutex_);
      const auto known = is_stale_.find(file);
      if (known != is_stale_.end()) return known->second;
    }
    if (files_[file].surrounds(view, record)) return false;
    const bool is_stale = files_[file].is_stale(view);
    const std::lock_guard lock(mutex_);
    return is_stale_.try_emplace(file, is_stale).first->second;
  }
  // The files whose indexes were found stale.
  std::vector<std::size_t> stale() const {
    std::vector<std::size_t> files;
    const std::lock_guard lock(mutex_);
    for (const auto& [file, is_stale] : is_stale_) {
      if (is_stale) files.push_back(file);
    }
    return files;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::size_t, bool> is_stale_;  // of files that were in doubt
  std::vector<Index> files_;
  std::vector<std::uint64_t> begins_;  // the total at the end
};

// The indexes of some files of a dataset, and the numbers of these files.
struct PartialIndexes {
  std::span<const std::int64_t> files;
  const Indexes* indexes = nullptr;
};

// The indexes of `n_files` files, each of which is in a part; the last part of a file
// counts. Throws std::invalid_argument and std::out_of_range.
std::vector<Index> merged(std::size_t n_files, std::span<const PartialIndexes> parts);

// The indexes of all parts, in order.
std::vector<Index> joined(std::span<const std::shared_ptr<Indexes>> parts);

// Builds the indexes of the files `numbers`. Throws like Index::build(), and
// std::out_of_range.
std::vector<Index> build_indexes(const FileTable& files,
                                 std::span<const std::int64_t> numbers,
                                 unsigned n_threads, ScanProgress* progress,
                                 Recovery recovery = Recovery::kNone);

}  // namespace fastrec
