#include "loader/walked_claims.h"

#include <algorithm>
#include <utility>

#include "file/guard.h"
#include "record/framing.h"

namespace fastrec {
namespace {

// A window is split into segments that are walked in parallel (interleaved cursors).
// The minimum size pays for finding the first frame of a segment.
constexpr unsigned kSegments = 16;
constexpr std::uint64_t kMinSegmentFrames = 64;
constexpr std::uint64_t kMinSegmentBytes = std::uint64_t{16} << 10;

}  // namespace

WalkedClaims::WalkedClaims(std::shared_ptr<FileTable> files, StepGrid grid,
                           Recovery recovery, std::uint64_t first_step,
                           ScanWindows windows)
    : files_(std::move(files)),
      grid_(std::move(grid)),
      bytes_max_(windows.bytes_max),
      read_window_(files_),
      search_(recovery, windows.first_bytes, &progress_.cancelled),
      is_from_start_(first_step == 0),
      step_(first_step),
      n_before_(first_step * grid_.batch_size) {}

void WalkedClaims::stop() {
  progress_.cancelled = true;
  {
    const std::lock_guard lock(mutex_);
  }  // no thread is between checking `cancelled` and waiting
  searched_.notify_all();
}

std::vector<FileOffsets> WalkedClaims::take_offsets() {
  const std::lock_guard lock(mutex_);
  return std::exchange(offsets_, {});
}

void WalkedClaims::prepare() noexcept {
  std::unique_lock lock(mutex_);
  find_batch(lock);
  if (!is_searching_ && !is_at_end_ && n_frame_bytes_ < ahead_bytes_) search(lock);
}

bool WalkedClaims::next(Claim* claim) {
  claim->slices.clear();
  claim->places.clear();
  std::unique_lock lock(mutex_);
  find_batch(lock);  // other threads may have claimed what prepare() found
  claim->step = step_++;
  if (n_frames_ < grid_.batch_size && failure_) std::rethrow_exception(failure_);
  std::uint64_t n_rows = 0;
  while (n_rows < grid_.batch_size && !frames_.empty()) {
    FrameSlice& front = frames_.front();
    const std::uint64_t n = std::min(front.count, grid_.batch_size - n_rows);
    claim->slices.push_back({front.run, front.first, n});
    n_rows += n;
    drop(n);
  }
  if (n_rows == 0) return false;
  claim->n_rows = static_cast<std::size_t>(grid_.n_rows(claim->step, n_rows));
  return !grid_.drop_last || n_rows == grid_.batch_size;
}

void WalkedClaims::locate(Claim* claim) const {
  for (const FrameSlice& slice : claim->slices) {
    const FrameRun& run = *slice.run;
    for (std::uint64_t i = slice.first; i < slice.first + slice.count; ++i) {
      const std::uint64_t offset = run.offsets[i];
      claim->places.push_back({run.file,
                               run.first_record + i,
                               {offset, run.offsets[i + 1] - offset - kFrameBytes}});
    }
  }
  claim->slices.clear();
  read_window_.will_read(claim->places, is_from_start_);
}

// Drops the first `n` frames, which are in one slice.
void WalkedClaims::drop(std::uint64_t n) {
  FrameSlice& front = frames_.front();
  const std::vector<std::uint64_t>& offsets = front.run->offsets;
  n_frames_ -= n;
  n_frame_bytes_ -= offsets[front.first + n] - offsets[front.first];
  front.first += n;
  front.count -= n;
  if (front.count == 0) frames_.pop_front();
}

// Waits until a batch is found, or the end of the files.
void WalkedClaims::find_batch(std::unique_lock<std::mutex>& lock) {
  while (n_frames_ < grid_.batch_size && !is_at_end_ && !progress_.cancelled) {
    if (is_searching_) {
      searched_.wait(lock);
    } else {
      search(lock);
    }
  }
}

// Finds more frames, with the lock released.
void WalkedClaims::search(std::unique_lock<std::mutex>& lock) {
  is_searching_ = true;
  lock.unlock();
  Runs runs;
  std::exception_ptr failure;
  bool is_found = false;
  try {
    is_found = find(&runs);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  try {
    for (auto& run : runs) {
      frames_.push_back({run, 0, run->size()});
      n_frames_ += run->size();
      n_frame_bytes_ += frames_.back().n_bytes();
      const std::uint64_t n = std::min(n_before_, run->size());
      if (n != 0) drop(n);
      n_before_ -= n;
    }
  } catch (...) {
    failure = std::current_exception();
  }
  failure_ = failure;
  is_at_end_ = failure || !is_found;
  ahead_bytes_ = search_.ahead_bytes;
  is_searching_ = false;
  searched_.notify_all();
}

// Appends the next frames to `*runs`; false at the end of the files. If it throws, the
// appended frames are still valid.
bool WalkedClaims::find(Runs* runs) {
  while (search_.file < files_->size() && !progress_.cancelled) {
    if (!search_.view) {
      search_.view = files_->open(search_.file);
      if (files_->is_assumed_plain()) check_plain(*search_.view);
      search_.offset = search_.record = 0;
      search_.offsets.assign(1, 0);
      search_.walk.start(*search_.view);
    }
    const bool is_scanned =
        search_.recovery == Recovery::kNone && search_.view->mapping() != nullptr;
    const bool is_more = is_scanned ? scan(runs) : walk(runs);
    if (!is_more) {
      end_file();
      search_.view.reset();
      ++search_.file;
    }
    if (!runs->empty()) return true;
  }
  return false;
}

// Scans a window of a mapped file. False after the last one.
bool WalkedClaims::scan(Runs* runs) {
  const FileView& view = *search_.view;
  const std::uint64_t begin = search_.offset;
  const std::uint64_t end = begin + std::min(search_.window_bytes, view.size() - begin);
  read_window_.read_ahead(search_.file, end);
  ScanResult found = scan_mapped(
      view.mapping()->bytes(), {begin, end}, 1,
      {std::max(kMinSegmentBytes, kMinSegmentFrames * search_.frame_bytes), kSegments},
      &progress_);
  if (progress_.cancelled) return true;

  // A header on a lost page ends the frames that were found.
  std::vector<std::uint64_t>& offsets = found.offsets;
  const std::size_t n_valid = view.mapping()->n_valid();
  const auto lost = std::partition_point(
      offsets.begin(), offsets.end() - 1,
      [&](std::uint64_t offset) { return offset + kHeaderBytes <= n_valid; });
  const bool is_lost = lost != offsets.end() - 1;
  offsets.erase(lost + 1, offsets.end());
  const std::uint64_t n = offsets.size() - 1;
  search_.offset = offsets.back();
  search_.frame_bytes = n == 0 ? view.size() : (search_.offset - begin) / n;
  const std::uint64_t record = search_.record;
  search_.record += n;
  if (n != 0) {
    runs->push_back(std::make_shared<const FrameRun>(
        FrameRun{search_.file, record, std::move(offsets)}));
  }
  if (is_lost || found.fault) {
    view.check_valid(search_.offset,
                     std::min(kHeaderBytes, view.size() - search_.offset));
    throw framing_error(view, found.fault, search_.record);
  }
  search_.ahead_bytes = search_.window_bytes / 2;
  search_.window_bytes = std::min(2 * search_.window_bytes, bytes_max_);
  return search_.offset < view.size();
}

// Adds the offsets of a run to those of its file, unless there is a gap before it.
void WalkedClaims::add_offsets(const FrameRun& run) {
  std::vector<std::uint64_t>& offsets = search_.offsets;
  const bool is_next = !offsets.empty() && offsets.back() == run.offsets.front();
  if (!is_next) return offsets.clear();
  offsets.insert(offsets.end(), run.offsets.begin() + 1, run.offsets.end());
}

// Keeps the offsets in a remote file, which are its index, unless there is a gap.
void WalkedClaims::end_file() {
  std::vector<std::uint64_t> offsets = std::exchange(search_.offsets, {});
  const bool is_whole = !offsets.empty() && offsets.back() == search_.view->size();
  if (search_.view->requests() == nullptr || !is_whole) return;
  const std::lock_guard lock(mutex_);
  offsets_.push_back({search_.file, std::move(offsets)});
}

// Walks the frames of a batch, so that gaps are reported with their batch. False after
// the last frame.
bool WalkedClaims::walk(Runs* runs) {
  install_guard();
  search_.ahead_bytes = 0;
  FrameRun run{search_.file, search_.record, {}};
  const auto end_run = [&] {
    if (run.offsets.empty()) return;
    search_.record += run.size();
    if (search_.view->requests() != nullptr) add_offsets(run);
    runs->push_back(std::make_shared<const FrameRun>(std::move(run)));
    run = {search_.file, search_.record, {}};
  };
  bool is_more = false;
  try {
    Frame frame;
    while (run.offsets.size() <= grid_.batch_size) {
      is_more = search_.walk.next(&frame);
      if (!is_more) break;
      read_window_.read_ahead(search_.file, frame.offset);
      if (search_.walk.has_gaps()) gaps_.add(search_.walk.take_gaps());
      if (!run.offsets.empty() && run.offsets.back() != frame.offset) end_run();
      if (run.offsets.empty()) run.offsets.push_back(frame.offset);
      run.offsets.push_back(frame.end());
    }
    if (search_.walk.has_gaps()) gaps_.add(search_.walk.take_gaps());
  } catch (...) {
    end_run();
    throw;
  }
  end_run();
  return is_more;
}

}  // namespace fastrec
