// Claims: which records make up the next step, found out one step at a time.
//
// Whoever is going to decode a step claims it first. Claims are made in the order of
// the steps, one at a time; finding the places of a claim's records, and decoding them,
// needs no order.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"
#include "loader/order.h"
#include "loader/step_grid.h"
#include "loader/window.h"
#include "record/catalog.h"
#include "record/recovery.h"
#include "record/stream.h"

namespace fastrec {

// The records of one rank in one step.
struct Claim {
  std::uint64_t step = 0;
  std::size_t n_rows = 0;  // of the batch: more than places where it is padded
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
  // thread calls it right before it takes the lock under which next() runs. May wait for
  // another thread; throws nothing.
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
  std::uint64_t step_;
};

// Steps of a data set in file order without an index: the files are walked, header by
// header, as far as steps are claimed. So the first batch comes at once. What lies
// before the first step is walked through, too. Of the grid, only the batch size and
// what becomes of the last batch is used: there is one rank.
class WalkedClaims final : public Claims {
 public:
  WalkedClaims(std::shared_ptr<FileTable> files, StepGrid grid,
               Recovery recovery = Recovery::kNone, std::uint64_t first_step = 0);
  bool next(Claim* claim) override;
  std::vector<Gap> take_gaps() override { return gaps_.take(); }
  void stop() override { is_stopped_ = true; }

 private:
  bool walk(Place* place);

  std::shared_ptr<FileTable> files_;
  StepGrid grid_;
  std::uint64_t step_;
  std::uint64_t n_before_;  // records before the first step, not walked through yet
  std::atomic<bool> is_stopped_{false};
  FrameWalk frames_;  // of view_
  GapList gaps_;
  std::size_t file_ = 0;
  std::shared_ptr<const FileView> view_;  // of file_, once it is open
  std::uint64_t record_ = 0;              // the number of the next one in the file
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
