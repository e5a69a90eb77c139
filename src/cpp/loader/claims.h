// Claims: which records make up the next step, found out one step at a time.
//
// Whoever is going to decode a step claims it first. Claims are made in the order of
// the steps, one at a time; finding the places of a claim's records, and decoding them,
// needs no order.
#pragma once

#include <cstdint>
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

// Frames of a file that touch each other.
struct FrameRun {
  std::size_t file = 0;
  std::uint64_t first_record = 0;      // its number in the file
  std::vector<std::uint64_t> offsets;  // of each frame, and the end of the last one

  std::uint64_t size() const noexcept { return offsets.size() - 1; }
};

// Some frames of a run, in a row.
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
  std::size_t n_rows = 0;          // of the batch: more than places where it is padded
  std::vector<FrameSlice> slices;  // that locate() finds the places in
  std::vector<Place> places;
  // Of streams: the frames at the places, one after another, with slack on both sides.
  std::vector<std::uint8_t> frames;
};

// Gaps on their way from the thread that finds them to the one that tells of them.
class GapList {
 public:
  void add(std::vector<Gap> gaps);
  std::vector<Gap> take();

 private:
  std::mutex mutex_;
  std::vector<Gap> gaps_;
};

class Claims {
 public:
  virtual ~Claims() = default;

  // Does the work that the following next() needs and that takes longer than O(1). A
  // thread calls it right before it takes the lock under which next() runs. May wait
  // for another thread; throws nothing.
  virtual void prepare() {}

  // Begins `*claim` anew with the step after the last one. False if there is none.
  // Throws Error and IoError, which belong to this step: what was claimed before is not
  // concerned.
  virtual bool next(Claim* claim) = 0;

  // Completes `*claim`. Any number of threads may call this.
  virtual void locate(Claim* claim) const;

  // What was left out of files so far, found out on the way, each of it once. Any
  // thread may call this.
  virtual std::vector<Gap> take_gaps() { return {}; }

  // Ends a next() that waits; what it returns means nothing. Any thread may call this.
  virtual void stop() {}
};

// Steps of a data set whose index is at hand: arithmetic.
class IndexedClaims final : public Claims {
 public:
  IndexedClaims(std::shared_ptr<FileTable> files,
                std::shared_ptr<const Catalog> catalog,
                std::shared_ptr<const Order> order, StepGrid grid,
                std::uint64_t first_step);
  bool next(Claim* claim) override;
  void locate(Claim* claim) const override;

 private:
  void announce(const RecordRange& range) const;

  std::shared_ptr<FileTable> files_;
  std::shared_ptr<const Catalog> catalog_;
  std::shared_ptr<const Order> order_;
  StepGrid grid_;
  mutable ReadWindow read_window_;
  std::uint64_t step_;
};

// How records of streams make up steps.
struct StreamShape {
  StepGrid grid;
  bool is_counted = false;  // the grid knows how many there are: otherwise they are
                            // read to the end, in steps of grid.batch_size, by one rank
  std::uint64_t first_step = 0;
  std::uint64_t first_position = 0;  // of the first record that comes out
  std::uint64_t bytes_max = 0;       // of frames that one step, or the window, holds
};

// Steps of streams: the records are taken as they come, and held until they are
// decoded. What lies before the first step is read and passed over.
class StreamClaims final : public Claims {
 public:
  // With `window`, records go through its slots.
  StreamClaims(FrameStream stream, StreamShape shape,
               std::optional<WindowDraws> window);
  bool next(Claim* claim) override;
  std::vector<Gap> take_gaps() override { return gaps_.take(); }
  void stop() override { stream_.stop(); }

 private:
  struct Held {
    Place place;
    std::vector<std::uint8_t> frame;
  };

  bool read(std::uint64_t bytes_max, Place* place, std::vector<std::uint8_t>* frames);
  bool pull(std::uint64_t bytes_max, Held* held);
  bool draw(Held* held);
  bool take(Claim* claim);
  bool pass_over();

  FrameStream stream_;
  GapList gaps_;
  StreamShape shape_;
  std::uint64_t step_;
  std::uint64_t position_;  // of the next record that comes out
  bool is_ended_ = false;

  std::optional<WindowDraws> window_;
  std::vector<Held> slots_;
  std::uint64_t held_bytes_ = 0;  // in the slots
  std::optional<Permutation> last_;
  std::uint64_t n_emptied_ = 0;
  Held passed_over_;
};

}  // namespace fastrec
