// Claims: the records of each step, one step at a time.
//
// A thread claims a step before it decodes it. Claims are made one at a time, in the
// order of the steps, each in O(1). What takes longer runs before it, in prepare(), or
// in parallel: locating and decoding the records of a claim.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"
#include "loader/order.h"
#include "loader/read_window.h"
#include "loader/step_grid.h"
#include "loader/window.h"
#include "record/catalog.h"
#include "record/frame_runs.h"
#include "record/recovery.h"
#include "record/stream.h"

namespace fastrec {

// The records of one rank in one step.
struct Claim {
  std::uint64_t step = 0;
  std::size_t n_rows = 0;  // of the batch, including padding
  FrameRuns frames;
  std::vector<RowRange> rows;  // of each record, if the catalog has rows
  // Streams only: the bytes of the frames, contiguous, with slack on both sides.
  std::vector<std::uint8_t> bytes;
};

// The offsets of all frames of a file, and the end of the last one.
struct FileOffsets {
  std::size_t file = 0;
  std::vector<std::uint64_t> offsets;
};

class Claims {
 public:
  enum class Outcome : std::uint8_t {
    kStep,
    kNone,  // other threads have claimed what prepare() found; call both again
    kEnd,
  };

  virtual ~Claims() = default;

  // Does the part of next() that takes longer than O(1). A thread calls it right before
  // it locks the mutex under which next() runs. May wait for another thread.
  virtual void prepare() noexcept {}

  // Overwrites `*claim` with the next step, in O(1). Throws Error and IoError, which
  // belong to this step and do not affect earlier claims.
  virtual Outcome next(Claim* claim) = 0;

  // Fills in the frames of `*claim`, if next() does not. Any number of threads may call
  // this.
  virtual void locate(Claim* claim) const;

  // Returns the gaps skipped since the last call. Any thread may call this.
  virtual std::vector<SkippedSpan> take_gaps() { return {}; }

  // Returns the offsets in remote files that were walked to their end since the last
  // call. Any thread may call this.
  virtual std::vector<FileOffsets> take_offsets() { return {}; }

  // Ends a waiting prepare(); next() then returns kEnd. Any thread may call this.
  virtual void stop() {}
};

// The steps of an indexed dataset: arithmetic.
class IndexedClaims final : public Claims {
 public:
  IndexedClaims(std::shared_ptr<FileTable> files,
                std::shared_ptr<const Catalog> catalog,
                std::shared_ptr<const Order> order, StepGrid grid,
                std::uint64_t first_step);
  Outcome next(Claim* claim) override;
  void locate(Claim* claim) const override;

 private:
  std::uint64_t locate_step(std::uint64_t step, FrameRuns* frames,
                            std::vector<RowRange>* rows) const;
  void announce_steps_from(const Claim& claim) const;

  std::shared_ptr<FileTable> files_;
  std::shared_ptr<const Catalog> catalog_;
  std::shared_ptr<const Order> order_;
  StepGrid grid_;
  mutable ReadWindow read_window_;
  const bool is_from_start_;
  std::uint64_t step_;

  // Remote files only.
  mutable std::mutex announce_mutex_;
  mutable std::uint64_t announced_end_ = 0;   // the steps before it were announced
  mutable std::uint64_t step_bytes_max_ = 1;  // the largest step so far
};

// Steps that one thread at a time searches for, outside the lock under which they are
// claimed:
//
//   | claimed ... | found | searched by one thread | ...
//
// Meanwhile, other threads claim the steps that were found; they wait for the search
// only if none is left. An error is queued behind the steps before it.
class SearchedClaims : public Claims {
 public:
  void prepare() noexcept final;
  Outcome next(Claim* claim) final;
  std::vector<SkippedSpan> take_gaps() final;
  void stop() override;

 protected:
  // Only the batch size, drop_last and pad_last of the grid concern this class.
  SearchedClaims(StepGrid grid, std::uint64_t first_step) : grid_(std::move(grid)) {
    current_.step = first_step;
  }

  // Adds the next steps, at least one except at the end. Returns false at the end. If it
  // throws, the exception belongs to the step after those that it added.
  virtual bool find() = 0;

  // For find(): adds current_, which has all of its frames, and begins the next step.
  void add_claim();
  void add_gaps(std::vector<SkippedSpan> gaps);

  const StepGrid grid_;
  Claim current_;     // owned by the search, which fills in the frames
  std::mutex mutex_;  // guards everything below

 private:
  void search(std::unique_lock<std::mutex>& lock);

  std::condition_variable searched_;  // a step was found, or a search has ended
  std::deque<Claim> found_;           // steps found and not claimed
  std::vector<Claim> spares_;         // their memory is reused
  std::uint64_t n_ahead_ = 0;      // search when at most this many found steps are left
  std::vector<SkippedSpan> gaps_;  // not taken
  std::exception_ptr failure_;     // behind found_
  bool is_searching_ = false;      // a thread is searching
  bool is_at_end_ = false;         // the search has ended
  bool is_stopped_ = false;
};

// How the records of streams form steps.
struct StreamShape {
  // Whether the grid has one position for each record. Otherwise one rank reads to the
  // end in steps of the batch size.
  bool is_counted = false;
  std::uint64_t first_step = 0;
  std::uint64_t first_position = 0;  // of the first record that is delivered
  std::uint64_t bytes_max = 0;       // limit of the frames in a step or in the window
};

// The steps of streams. Records are read in order and buffered until they are decoded.
// Those before the first step are read and skipped.
class StreamClaims final : public SearchedClaims {
 public:
  // A `window` shuffles the records.
  StreamClaims(FrameStream stream, StepGrid grid, StreamShape shape,
               std::optional<WindowDraws> window);
  void stop() override;

 private:
  bool find() override;
  struct BufferedRecord {
    Place place;
    std::vector<std::uint8_t> frame;
  };

  bool read(std::uint64_t bytes_max, Place* place, std::vector<std::uint8_t>* bytes);
  bool read_record(std::uint64_t bytes_max, BufferedRecord* record);
  bool next_shuffled(BufferedRecord* record);
  bool add_record(Claim* claim);
  bool skip_record();

  FrameStream stream_;
  const StreamShape shape_;
  std::uint64_t position_;  // of the next record to deliver
  bool is_ended_ = false;

  std::optional<WindowDraws> window_;
  std::vector<BufferedRecord> slots_;
  std::uint64_t buffered_bytes_ = 0;  // in the slots
  std::optional<Permutation> drain_order_;
  std::uint64_t n_drained_ = 0;
  BufferedRecord record_;  // the last one that was read; its memory is reused
};

}  // namespace fastrec
