#include "loader/claims.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <numeric>
#include <utility>

#include "record/framing.h"

namespace fastrec {

void Claims::locate(Claim*) const {}

IndexedClaims::IndexedClaims(std::shared_ptr<FileTable> files,
                             std::shared_ptr<const Catalog> catalog,
                             std::shared_ptr<const Order> order, StepGrid grid,
                             std::uint64_t first_step)
    : files_(std::move(files)),
      catalog_(std::move(catalog)),
      order_(std::move(order)),
      grid_(std::move(grid)),
      read_window_(files_),
      is_from_start_(first_step == 0),
      step_(first_step) {
  if (files_->requests() == nullptr || catalog_->size() == 0) return;
  // The bytes after selected records would be fetched for nothing.
  const Place last = catalog_->locate(catalog_->size() - 1);
  read_window_.end_at(last.file, last.frame.end());
}

Claims::Outcome IndexedClaims::next(Claim* claim) {
  if (step_ >= grid_.n_steps()) return Outcome::kEnd;
  claim->step = step_++;
  return Outcome::kStep;
}

namespace {

// Whether the frames look like consecutive records in file order. False for one frame.
bool are_in_order(const FrameRuns& frames) {
  return frames.size() > 1 &&
         std::ranges::adjacent_find(
             frames.runs, [](const FrameRun& a, const FrameRun& b) {
               return a.file == b.file ? b.first_record != a.first_record + a.count
                                       : b.file < a.file || b.first_record != 0;
             }) == frames.runs.end();
}

// How many ranges of a remote store are requested ahead. This keeps all connections
// busy for a while.
constexpr std::uint64_t kMaxRangesAhead = 4096;

// A thread announces at most this many steps at a time, so that the first batch does
// not wait for them.
constexpr std::uint64_t kMaxNewSteps = 8;

}  // namespace

void IndexedClaims::locate(Claim* claim) const {
  const FrameRuns& frames = claim->frames;
  const std::uint64_t n = locate_step(claim->step, &claim->frames, &claim->rows);
  // Rows of one record share it, and padding needs none.
  claim->n_rows = static_cast<std::size_t>(
      catalog_->has_rows() ? frames.size() : grid_.n_rows(claim->step, n));
  const bool is_in_order = are_in_order(frames);
  read_window_.will_read(frames, is_in_order && is_from_start_);
  if (is_in_order && grid_.world_size == 1 &&
      read_window_.is_before_end(frames.runs.back())) {
    read_window_.read_ahead(frames.runs.back().file, frames.runs.back().end);
  } else if (files_->requests() != nullptr) {
    announce_steps_from(*claim);
  }
}

// Sets `*frames` to those of a step, and `*rows` to the rows of each if the catalog has
// rows. Prefetches those that its order will need next. Returns the size of the step.
std::uint64_t IndexedClaims::locate_step(std::uint64_t step, FrameRuns* frames,
                                         std::vector<RowRange>* rows) const {
  const auto locate = [&](std::span<const std::uint64_t> numbers) {
    frames->clear();
    if (catalog_->has_rows()) {
      catalog_->locate_records(numbers, frames, rows);
    } else {
      catalog_->locate(numbers, frames);
    }
  };
  std::vector<std::uint64_t> numbers;
  grid_.positions(step, &numbers);
  std::vector<RecordRange> upcoming;
  order_->upcoming(numbers, &upcoming);
  for (const RecordRange& range : upcoming) {
    std::vector<std::uint64_t> block(range.count);
    std::iota(block.begin(), block.end(), range.first);
    locate(block);
    files_->will_need(frames->ranges());
  }
  order_->to_records(numbers);
  locate(numbers);
  return numbers.size();
}

// Prefetches the records of `claim` and of the steps after it: a remote store needs many
// requests in flight. If another thread is doing so, returns at once.
void IndexedClaims::announce_steps_from(const Claim& claim) const {
  const std::unique_lock lock(announce_mutex_, std::try_to_lock);
  if (!lock) return;
  // The memory for ranges holds about this many steps of the largest size so far.
  std::uint64_t n_bytes = 0;
  for (const FrameRun& run : claim.frames.runs) n_bytes += run.n_bytes();
  step_bytes_max_ = std::max(step_bytes_max_, n_bytes);
  const std::uint64_t n_ahead =
      std::min(kMaxRangesAhead / std::max<std::uint64_t>(1, claim.frames.runs.size()),
               files_->requests()->ahead_bytes() / step_bytes_max_) +
      1;
  announced_end_ = std::max(announced_end_, claim.step);
  const std::uint64_t end = std::min(
      {grid_.n_steps(), claim.step + 1 + n_ahead, announced_end_ + kMaxNewSteps});
  for (; announced_end_ < end; ++announced_end_) {
    FrameRuns frames;
    std::vector<RowRange> rows;
    locate_step(announced_end_, &frames, &rows);
    files_->will_need(frames.ranges());
  }
}

void SearchedClaims::prepare() noexcept {
  std::unique_lock lock(mutex_);
  while (found_.size() <= n_ahead_ && !is_at_end_ && !is_stopped_) {
    if (!is_searching_) return search(lock);
    if (!found_.empty()) return;
    searched_.wait(lock);
  }
}

// Finds more steps, with the lock released.
void SearchedClaims::search(std::unique_lock<std::mutex>& lock) {
  is_searching_ = true;
  lock.unlock();
  const std::uint64_t first_step = current_.step;
  bool is_more = false;
  std::exception_ptr failure;
  try {
    is_more = find();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  // A search that finds many steps is worth starting before the last one is claimed.
  n_ahead_ = (current_.step - first_step) / 2;
  failure_ = failure;
  is_at_end_ = !is_more;
  is_searching_ = false;
  if (is_more) {
    searched_.notify_one();  // another thread may search
  } else {
    searched_.notify_all();
  }
}

Claims::Outcome SearchedClaims::next(Claim* claim) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return Outcome::kEnd;
  if (!found_.empty()) {
    std::swap(*claim, found_.front());
    spares_.push_back(std::move(found_.front()));
    found_.pop_front();
    return Outcome::kStep;
  }
  if (failure_) std::rethrow_exception(failure_);
  return is_at_end_ ? Outcome::kEnd : Outcome::kNone;
}

void SearchedClaims::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  searched_.notify_all();
}

void SearchedClaims::add_claim() {
  const std::uint64_t step = current_.step;
  current_.n_rows =
      static_cast<std::size_t>(grid_.n_rows(step, current_.frames.size()));
  {
    const std::lock_guard lock(mutex_);
    found_.push_back(std::move(current_));
    current_ = {};
    if (!spares_.empty()) {
      current_ = std::move(spares_.back());
      spares_.pop_back();
    }
  }
  searched_.notify_one();
  current_.step = step + 1;
  current_.frames.clear();
}

void SearchedClaims::add_gaps(std::vector<SkippedSpan> gaps) {
  const std::lock_guard lock(mutex_);
  std::ranges::move(gaps, std::back_inserter(gaps_));
}

std::vector<SkippedSpan> SearchedClaims::take_gaps() {
  const std::lock_guard lock(mutex_);
  return std::exchange(gaps_, {});
}

StreamClaims::StreamClaims(FrameStream stream, StepGrid grid, StreamShape shape,
                           std::optional<WindowDraws> window)
    : SearchedClaims(std::move(grid), shape.first_step),
      stream_(std::move(stream)),
      shape_(shape),
      position_(shape.first_position),
      window_(window) {}

void StreamClaims::stop() {
  SearchedClaims::stop();
  stream_.stop();
}

bool StreamClaims::find() {
  if (shape_.is_counted && current_.step >= grid_.n_steps()) {
    const std::uint64_t n = grid_.n_steps();
    const PositionRange last = n == 0 ? PositionRange{} : grid_.range(n - 1);
    if (!grid_.drop_last && position_ == last.first + last.count && skip_record()) {
      throw stream_.error(Errc::kIndexMismatch,
                          "the index is stale: the files have more records than it");
    }
    return false;
  }
  Claim& claim = current_;
  claim.bytes.assign(Buffer::kSlackBytes, 0);
  if (shape_.is_counted) {
    std::vector<std::uint64_t> wanted;
    grid_.positions(claim.step, &wanted);
    const PositionRange all = grid_.range(claim.step);
    const std::uint64_t first = wanted.empty() ? all.first + all.count : wanted.front();
    while (position_ < first && skip_record()) continue;
    while (claim.frames.size() < wanted.size() && add_record(&claim)) continue;
    while (position_ < all.first + all.count && skip_record()) continue;
    if (position_ < all.first + all.count && !grid_.pad_last) {
      throw stream_.error(Errc::kIndexMismatch,
                          "the index is stale: the files have fewer records than it");
    }
  } else {
    while (position_ < claim.step * grid_.batch_size && skip_record()) continue;
    while (claim.frames.size() < grid_.batch_size && add_record(&claim)) continue;
    if (claim.frames.size() == 0) return false;
    if (grid_.drop_last && claim.frames.size() < grid_.batch_size) return false;
  }
  claim.bytes.insert(claim.bytes.end(), Buffer::kSlackBytes, 0);
  add_claim();
  return true;
}

bool StreamClaims::read(std::uint64_t bytes_max, Place* place,
                        std::vector<std::uint8_t>* bytes) {
  if (is_ended_) return false;
  is_ended_ = !stream_.next(bytes_max, place, bytes);
  if (stream_.has_gaps()) add_gaps(stream_.take_gaps());
  return !is_ended_;
}

// Reads the next record in file order.
bool StreamClaims::read_record(std::uint64_t bytes_max, BufferedRecord* record) {
  record->frame.clear();
  return read(bytes_max, &record->place, &record->frame);
}

// Returns the next record in the order of the window.
bool StreamClaims::next_shuffled(BufferedRecord* record) {
  while (!is_ended_ && slots_.size() < window_->n_slots()) {
    BufferedRecord incoming;
    if (!read_record(shape_.bytes_max - buffered_bytes_, &incoming)) break;
    buffered_bytes_ += incoming.frame.size();
    slots_.push_back(std::move(incoming));
  }
  if (read_record(shape_.bytes_max - buffered_bytes_, record)) {
    BufferedRecord& slot = slots_[window_->slot(position_)];
    buffered_bytes_ = buffered_bytes_ + record->frame.size() - slot.frame.size();
    std::swap(slot, *record);
    return true;
  }
  if (!drain_order_) drain_order_ = window_->drain_order(slots_.size());
  if (n_drained_ == slots_.size()) return false;
  *record = std::move(slots_[(*drain_order_)(n_drained_++)]);
  buffered_bytes_ -= record->frame.size();
  return true;
}

// Adds the next record to the claim.
bool StreamClaims::add_record(Claim* claim) {
  Place place;
  if (window_) {
    if (!next_shuffled(&record_)) return false;
    place = record_.place;
    claim->bytes.insert(claim->bytes.end(), record_.frame.begin(), record_.frame.end());
  } else if (!read(shape_.bytes_max, &place, &claim->bytes)) {
    return false;
  }
  ++position_;
  claim->frames.add(place);
  return true;
}

bool StreamClaims::skip_record() {
  const bool is_found =
      window_ ? next_shuffled(&record_) : read_record(shape_.bytes_max, &record_);
  position_ += is_found;
  return is_found;
}

}  // namespace fastrec
