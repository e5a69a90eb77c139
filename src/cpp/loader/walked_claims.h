// WalkedClaims: the steps of an epoch in file order, without an index.
//
// The frames are found ahead of the claims, by one thread at a time and outside of the
// lock under which steps are claimed:
//
//   | claimed ... | found: runs of frames | searched by one thread | ...
//
// Mapped files are scanned in windows (record/scan.h). The first one is small, so that
// the first batch comes at once. Other threads claim from what is found meanwhile, and
// wait for the search only if that is less than a batch. Files that are read by pread,
// or under a recovery, are walked frame by frame, as far as the next claim needs.
//
// Frames before the first step are found and dropped. An error stands behind the frames
// before it, so that it belongs to the step of the frame that it is about.
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

// How much of a mapped file is scanned at once: each window has twice the bytes of the
// one before. No result depends on it.
struct ScanWindows {
  std::uint64_t first_bytes = std::uint64_t{256} << 10;
  std::uint64_t bytes_max = std::uint64_t{8} << 20;
};

class WalkedClaims final : public Claims {
 public:
  // Of the grid, only the batch size and what becomes of the last batch is used: there
  // is one rank.
  WalkedClaims(std::shared_ptr<FileTable> files, StepGrid grid,
               Recovery recovery = Recovery::kNone, std::uint64_t first_step = 0,
               ScanWindows windows = {});
  void prepare() override;
  bool next(Claim* claim) override;
  void locate(Claim* claim) const override;
  std::vector<Gap> take_gaps() override { return gaps_.take(); }
  void stop() override;

 private:
  using Runs = std::vector<std::shared_ptr<const FrameRun>>;

  // Where the search is. Only the thread that set is_searching_ uses it.
  struct Search {
    Search(Recovery policy, std::uint64_t first_bytes,
           const std::atomic<bool>* cancelled)
        : recovery(policy), walk(policy, cancelled), window_bytes(first_bytes) {}

    const Recovery recovery;
    FrameWalk walk;  // of a view that is not scanned
    std::size_t file = 0;
    std::shared_ptr<const FileView> view;  // of the file, once it is open
    std::uint64_t offset = 0;              // of the next frame
    std::uint64_t record = 0;              // its number in the file
    std::uint64_t window_bytes;
    std::uint64_t frame_bytes = UINT64_MAX >> 16;  // on average, in the last window
    std::uint64_t ahead_bytes = 0;  // a search is due when less than that is found
  };

  void find_batch(std::unique_lock<std::mutex>& lock);
  void search(std::unique_lock<std::mutex>& lock);
  void drop(std::uint64_t n);
  bool find(Runs* runs);
  bool scan(Runs* runs);
  bool walk(Runs* runs);

  const std::shared_ptr<FileTable> files_;
  const StepGrid grid_;
  const std::uint64_t bytes_max_;  // of a window
  mutable ReadWindow read_window_;
  GapList gaps_;
  ScanProgress progress_;  // cancelled by stop()
  Search search_;

  std::mutex mutex_;                  // guards all that follows
  std::condition_variable searched_;  // a search has ended
  std::deque<FrameSlice> frames_;     // that were found and not claimed
  std::uint64_t n_frames_ = 0;        // in frames_
  std::uint64_t n_frame_bytes_ = 0;   // of them
  std::uint64_t ahead_bytes_ = 0;     // as the last search left it
  std::uint64_t step_;                // that comes next
  std::uint64_t n_before_;            // records before the first step, not found yet
  std::exception_ptr failure_;        // behind frames_
  bool is_searching_ = false;         // a thread is
  bool is_at_end_ = false;            // nothing is behind frames_ but failure_
};

}  // namespace fastrec
