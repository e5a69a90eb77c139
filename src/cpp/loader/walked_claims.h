// WalkedClaims: the steps of an epoch in file order, without an index.
//
// One thread at a time searches for frames ahead of the claims, outside the lock under
// which steps are claimed:
//
//   | claimed ... | found: runs of frames | searched by one thread | ...
//
// Mapped files are scanned in windows (record/scan.h). The first window is small, so
// that the first batch is fast. Meanwhile other threads claim frames that were found;
// they wait for the search only if less than a batch is left. Files that are read by
// pread, or with a recovery policy, are walked frame by frame, as far as the next claim
// needs.
//
// Frames before the first step are found and dropped. An error is queued behind the
// frames before it, so that it belongs to the step of its frame.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "loader/claims.h"
#include "loader/read_window.h"
#include "record/scan.h"

namespace fastrec {

// The sizes of scan windows; each is twice the previous one. No result depends on them.
struct ScanWindows {
  std::uint64_t first_bytes = std::uint64_t{256} << 10;
  std::uint64_t bytes_max = std::uint64_t{8} << 20;
};

class WalkedClaims final : public Claims {
 public:
  // There must be one rank. Only the batch size, drop_last and pad_last of the grid are
  // used.
  WalkedClaims(std::shared_ptr<FileTable> files, StepGrid grid,
               Recovery recovery = Recovery::kNone, std::uint64_t first_step = 0,
               ScanWindows windows = {});
  void prepare() noexcept override;
  bool next(Claim* claim) override;
  void locate(Claim* claim) const override;
  std::vector<SkippedSpan> take_gaps() override { return gaps_.take(); }
  std::vector<FileOffsets> take_offsets() override;
  void stop() override;

 private:
  using Runs = std::vector<std::shared_ptr<const FrameRun>>;

  // The state of the search. Only the thread that set is_searching_ uses it.
  struct Search {
    Search(Recovery policy, std::uint64_t first_bytes,
           const std::atomic<bool>* cancelled)
        : recovery(policy),
          walk(policy, cancelled, FileView::Use::kPeek),
          window_bytes(first_bytes) {}

    const Recovery recovery;
    FrameWalk walk;  // for views that cannot be scanned
    std::size_t file = 0;
    std::shared_ptr<const FileView> view;  // of the file, once it is open
    std::uint64_t offset = 0;              // of the next frame
    std::uint64_t record = 0;              // its index in the file
    std::uint64_t window_bytes;
    std::uint64_t frame_bytes = UINT64_MAX >> 16;  // mean size in the last window
    std::uint64_t ahead_bytes = 0;  // search again if less than this is found
    // The offsets of all frames of a remote file; empty if it has a gap.
    std::vector<std::uint64_t> offsets;
  };

  void find_batch(std::unique_lock<std::mutex>& lock);
  void search(std::unique_lock<std::mutex>& lock);
  void drop(std::uint64_t n);
  bool find(Runs* runs);
  bool scan(Runs* runs);
  bool walk(Runs* runs);
  void add_offsets(const FrameRun& run);
  void end_file();

  const std::shared_ptr<FileTable> files_;
  const StepGrid grid_;
  const std::uint64_t bytes_max_;  // of a window
  mutable ReadWindow read_window_;
  GapList gaps_;
  ScanProgress progress_;  // cancelled by stop()
  Search search_;
  const bool is_from_start_;

  std::mutex mutex_;                  // guards everything below
  std::condition_variable searched_;  // a search has ended
  std::vector<FileOffsets> offsets_;  // of whole files, not taken
  std::deque<FrameSlice> frames_;     // found and not claimed
  std::uint64_t n_frames_ = 0;        // in frames_
  std::uint64_t n_frame_bytes_ = 0;   // in frames_
  std::uint64_t ahead_bytes_ = 0;     // copy of search_.ahead_bytes
  std::uint64_t step_;                // the next step
  std::uint64_t n_before_;            // records still to drop before the first step
  std::exception_ptr failure_;        // the error behind frames_
  bool is_searching_ = false;         // a thread is searching
  bool is_at_end_ = false;            // the search has ended
};

}  // namespace fastrec
