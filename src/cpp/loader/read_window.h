// ReadWindow: the frames an epoch reads -> prefetch and release of the pages around.
//
//   first | released | kept: kKeptBytes | read now | prefetched: kAheadBytes |
//
// Prefetching is explicit: the kernel may read ahead too little of a mapping, or of a
// file that several threads read. Mapped bytes are released after reading, so that the
// resident memory of the process does not grow with the files; they stay in the page
// cache. All of this is advice and never fails: reading released bytes again faults
// them in from the page cache, at about 90 ns per KiB. So an epoch in file order keeps
// the first kFirstBytes, which the next epoch reads first.
//
// From a remote store, RangeRequests::ahead_bytes() are prefetched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "file/file_view.h"
#include "record/frame_runs.h"

namespace fastrec {

class ReadWindow {
 public:
  static constexpr std::uint64_t kAheadBytes = std::uint64_t{8} << 20;
  static constexpr std::uint64_t kFirstBytes = std::uint64_t{128} << 20;
  // Twice this is resident while one epoch ends and the next one begins.
  static constexpr std::uint64_t kKeptBytes = std::uint64_t{48} << 20;

  explicit ReadWindow(std::shared_ptr<FileTable> files)
      : files_(std::move(files)), end_{files_->size(), 0} {}

  // Prefetches nothing from byte `offset` of `file` on. Call this before the others.
  void end_at(std::size_t file, std::uint64_t offset) { end_ = {file, offset}; }
  bool is_before_end(const FrameRun& run) const noexcept {
    return std::pair(run.file, run.end) <= end_;
  }

  // Prefetches from byte `offset` of `file` on, for reading in file order. Cheap if
  // already requested. Any thread may call this.
  void read_ahead(std::size_t file, std::uint64_t offset);

  // Notes that `frames` are read now. `is_in_order` means an epoch in file order from
  // its first step. Any thread may call this.
  void will_read(const FrameRuns& frames, bool is_in_order);

 private:
  struct Range {
    std::uint64_t begin = 0, end = 0;
    std::shared_ptr<const FileView> view = nullptr;
  };

  void request(std::size_t file, std::uint64_t begin, std::uint64_t end);
  void add(const Range& range, bool is_in_order);

  const std::shared_ptr<FileTable> files_;
  std::pair<std::size_t, std::uint64_t> end_;
  std::mutex request_mutex_;  // guards the end of the requested bytes
  std::size_t requested_file_ = 0;
  std::uint64_t requested_end_ = 0;
  std::mutex ranges_mutex_;  // guards everything below
  std::deque<Range> ranges_;
  std::uint64_t n_bytes_ = 0;        // of the ranges
  std::uint64_t n_first_bytes_ = 0;  // read first, and never released
};

}  // namespace fastrec
