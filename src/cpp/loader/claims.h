// Claims: the records of each step, one step at a time.
//
// A thread claims a step before it decodes it. Claims are made one at a time, in the
// order of the steps. Locating and decoding the records of a claim runs in parallel.
#pragma once

#include <cstdint>
#include <deque>
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
#include "record/recovery.h"
#include "record/stream.h"

namespace fastrec {

// Contiguous frames of a file.
struct FrameRun {
  std::size_t file = 0;
  std::uint64_t first_record = 0;      // index in the file
  std::vector<std::uint64_t> offsets;  // of each frame, and the end of the last one

  std::uint64_t size() const noexcept { return offsets.size() - 1; }
};

// Consecutive frames of a run.
struct FrameSlice {
  std::shared_ptr<const FrameRun> run;
  std::uint64_t first = 0, count = 0;

  std::uint64_t n_bytes() const noexcept {
    return run->offsets[first + count] - run->offsets[first];
  }
};

// The records of one rank in one step.
struct Claim {
  std::uint64_t step = 0;
  std::size_t n_rows = 0;          // of the batch, including padding
  std::vector<FrameSlice> slices;  // which locate() converts to places
  std::vector<Place> places;
  // Streams only: the frames at the places, contiguous, with slack on both sides.
  std::vector<std::uint8_t> frames;
};

// The offsets of all frames of a file, and the end of the last one.
struct FileOffsets {
  std::size_t file = 0;
  std::vector<std::uint64_t> offsets;
};

// A queue of gaps from the threads that find them to the one that reports them.
class GapList {
 public:
  void add(std::vector<SkippedSpan> gaps);
  std::vector<SkippedSpan> take();

 private:
  std::mutex mutex_;
  std::vector<SkippedSpan> gaps_;
};

class Claims {
 public:
  virtual ~Claims() = default;

  // Does the part of next() that takes longer than O(1), except for streams, which are
  // read in next(). A thread calls it right before it locks the mutex under which next()
  // runs. May wait for another thread.
  virtual void prepare() noexcept {}

  // Overwrites `*claim` with the next step. False at the end. Throws Error and IoError,
  // which belong to this step and do not affect earlier claims.
  virtual bool next(Claim* claim) = 0;

  // Fills in the places of `*claim`. Any number of threads may call this.
  virtual void locate(Claim* claim) const;

  // Returns the gaps skipped since the last call. Any thread may call this.
  virtual std::vector<SkippedSpan> take_gaps() { return {}; }

  // Returns the offsets in remote files that were walked to their end since the last
  // call. Any thread may call this.
  virtual std::vector<FileOffsets> take_offsets() { return {}; }

  // Ends a waiting next(), whose result is then meaningless. Any thread may call this.
  virtual void stop() {}
};

// The steps of an indexed dataset: arithmetic.
class IndexedClaims final : public Claims {
 public:
  IndexedClaims(std::shared_ptr<FileTable> files,
                std::shared_ptr<const Catalog> catalog,
                std::shared_ptr<const Order> order, StepGrid grid,
                std::uint64_t first_step);
  bool next(Claim* claim) override;
  void locate(Claim* claim) const override;

 private:
  // The contiguous ranges of bytes in a step.
  struct Size {
    std::uint64_t n_ranges = 0, n_bytes = 0;
  };

  void locate_step(std::uint64_t step, std::vector<Place>* places) const;
  void announce_steps_after(std::uint64_t step) const;

  std::shared_ptr<FileTable> files_;
  std::shared_ptr<const Catalog> catalog_;
  std::shared_ptr<const Order> order_;
  StepGrid grid_;
  mutable ReadWindow read_window_;
  const bool is_from_start_;
  std::uint64_t step_;

  // Remote files only: the steps that were announced and not located yet.
  struct Announced {
    std::mutex mutex;
    std::uint64_t first_step = 0;
    std::deque<Size> sizes;  // of each step
    Size total;
  };
  mutable Announced announced_;
};

// How the records of streams form steps.
struct StreamShape {
  StepGrid grid;
  // Whether grid.n_positions is the number of records. Otherwise one rank reads to the
  // end in steps of grid.batch_size.
  bool is_counted = false;
  std::uint64_t first_step = 0;
  std::uint64_t first_position = 0;  // of the first record that is delivered
  std::uint64_t bytes_max = 0;       // limit of the frames in a step or in the window
};

// The steps of streams. Records are read in order and buffered until they are decoded.
// Those before the first step are read and skipped.
class StreamClaims final : public Claims {
 public:
  // A `window` shuffles the records.
  StreamClaims(FrameStream stream, StreamShape shape,
               std::optional<WindowDraws> window);
  bool next(Claim* claim) override;
  std::vector<SkippedSpan> take_gaps() override { return gaps_.take(); }
  void stop() override { stream_.stop(); }

 private:
  struct BufferedRecord {
    Place place;
    std::vector<std::uint8_t> frame;
  };

  bool read(std::uint64_t bytes_max, Place* place, std::vector<std::uint8_t>* frames);
  bool read_record(std::uint64_t bytes_max, BufferedRecord* record);
  bool next_shuffled(BufferedRecord* record);
  bool add_record(Claim* claim);
  bool skip_record();

  FrameStream stream_;
  GapList gaps_;
  StreamShape shape_;
  std::uint64_t step_;
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
