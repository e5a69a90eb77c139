// FrameRuns: the records of a batch, as runs of contiguous frames.
//
//   runs     | file 0, records 7 to 9 | file 2, record 0 |
//   lengths  |   n7  |   n8  |   n9   |        n0        |
//
// Records in file order are few runs; shuffled records are one run each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "file/range_requests.h"
#include "record/framing.h"

namespace fastrec {

class Indexes;

// The location of one record of a dataset.
struct Place {
  std::size_t file = 0;      // index of the file
  std::uint64_t record = 0;  // index of the record in that file
  Frame frame;
  const Indexes* indexes = nullptr;  // that have this place; null if it was walked
};

// Rows of a record, numbered from 0.
struct RowRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

// Consecutive records of a file, in contiguous frames.
struct FrameRun : FileRange {
  std::uint64_t first_record = 0;  // index in the file
  std::size_t count = 0;           // records
};

struct FrameRuns {
  std::vector<FrameRun> runs;
  std::vector<std::uint64_t> lengths;  // of the payloads in all runs
  const Indexes* indexes = nullptr;    // see Place

  std::size_t size() const noexcept { return lengths.size(); }

  // The bytes of each run.
  std::vector<FileRange> ranges() const { return {runs.begin(), runs.end()}; }

  void clear() noexcept {
    runs.clear();
    lengths.clear();
    indexes = nullptr;
  }

  // All places must have the same indexes.
  void add(const Place& place) {
    FrameRun& run = continued(place.file, place.record, place.frame.offset);
    lengths.push_back(place.frame.length);
    run.end = place.frame.end();
    ++run.count;
    indexes = place.indexes;
  }

  // Adds consecutive records of a file. `offsets` are those of their contiguous frames,
  // and the end of the last one.
  void add(std::size_t file, std::uint64_t record,
           std::span<const std::uint64_t> offsets) {
    FrameRun& run = continued(file, record, offsets.front());
    const std::size_t n = offsets.size() - 1;
    const std::size_t n_before = lengths.size();
    lengths.resize(n_before + n);
    for (std::size_t i = 0; i < n; ++i) {
      lengths[n_before + i] = offsets[i + 1] - offsets[i] - kFrameBytes;
    }
    run.end = offsets.back();
    run.count += n;
  }

 private:
  // The run that continues with a record and its frame at `begin`: the last or a new one.
  FrameRun& continued(std::size_t file, std::uint64_t record, std::uint64_t begin) {
    if (!runs.empty()) {
      FrameRun& last = runs.back();
      if (last.file == file && last.end == begin &&
          last.first_record + last.count == record) {
        return last;
      }
    }
    return runs.emplace_back(FrameRun{{file, begin, begin}, record, 0});
  }
};

// Looks up places of records in ascending order, in O(1) on average.
class PlaceCursor {
 public:
  explicit PlaceCursor(const FrameRuns* frames = nullptr) : frames_(frames) {}

  // `i` is below the size of the frames, and not below that of the last call.
  Place at(std::size_t i) {
    while (i - run_begin_ >= frames_->runs[run_].count) {
      run_begin_ += frames_->runs[run_++].count;
      record_ = run_begin_;
      run_bytes_ = 0;
    }
    for (; record_ < i; ++record_)
      run_bytes_ += frames_->lengths[record_] + kFrameBytes;
    const FrameRun& run = frames_->runs[run_];
    return {run.file,
            run.first_record + (i - run_begin_),
            {run.begin + run_bytes_, frames_->lengths[i]},
            frames_->indexes};
  }

 private:
  const FrameRuns* frames_;
  std::size_t run_ = 0;
  std::size_t run_begin_ = 0;    // the first record of the run
  std::size_t record_ = 0;       // the last one that was looked up
  std::uint64_t run_bytes_ = 0;  // of the run, before that record
};

}  // namespace fastrec
