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
    : SearchedClaims(std::move(grid), first_step),
      files_(std::move(files)),
      recovery_(recovery),
      bytes_max_(windows.bytes_max),
      read_window_(files_),
      is_from_start_(first_step == 0),
      walk_(recovery, &progress_.cancelled, FileView::Use::kPeek),
      window_bytes_(windows.first_bytes),
      n_before_(first_step * grid_.batch_size) {}

void WalkedClaims::stop() {
  progress_.cancelled = true;
  SearchedClaims::stop();
}

std::vector<FileOffsets> WalkedClaims::take_offsets() {
  const std::lock_guard lock(mutex_);
  return std::exchange(offsets_, {});
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

bool WalkedClaims::find() {
  while (file_ < files_->size() && !progress_.cancelled) {
    if (!view_) {
      view_ = files_->open(file_);
      if (files_->is_assumed_plain()) check_plain(*view_);
      offset_ = record_ = 0;
      file_offsets_.assign(1, 0);
      walk_.start(*view_);
    }
    const bool is_scanned = recovery_ == Recovery::kNone && view_->mapping() != nullptr;
    if (!(is_scanned ? scan() : walk())) {
      end_file();
      view_.reset();
      ++file_;
    }
    if (has_added()) return true;
  }
  if (n_current_ != 0 && !grid_.drop_last) add_claim(n_current_);
  return false;
}

// Divides a run among the claims.
void WalkedClaims::add(FrameRun run) {
  record_ += run.size();
  const auto shared = std::make_shared<const FrameRun>(std::move(run));
  std::uint64_t first = std::min(n_before_, shared->size());
  n_before_ -= first;
  while (first < shared->size()) {
    const std::uint64_t n =
        std::min(shared->size() - first, grid_.batch_size - n_current_);
    current().slices.push_back({shared, first, n});
    first += n;
    n_current_ += n;
    if (n_current_ < grid_.batch_size) return;
    add_claim(n_current_);
    n_current_ = 0;
  }
}

// Scans a window of a mapped file. False after the last one.
bool WalkedClaims::scan() {
  const FileView& view = *view_;
  const std::uint64_t begin = offset_;
  const std::uint64_t end = begin + std::min(window_bytes_, view.size() - begin);
  read_window_.read_ahead(file_, end);
  ScanResult found = scan_mapped(
      view.mapping()->bytes(), {begin, end}, 1,
      {std::max(kMinSegmentBytes, kMinSegmentFrames * frame_bytes_), kSegments},
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
  offset_ = offsets.back();
  frame_bytes_ = n == 0 ? view.size() : (offset_ - begin) / n;
  add({file_, record_, std::move(offsets)});
  if (is_lost || found.fault) {
    view.check_valid(offset_, std::min(kHeaderBytes, view.size() - offset_));
    throw framing_error(view, found.fault, record_);
  }
  window_bytes_ = std::min(2 * window_bytes_, bytes_max_);
  return offset_ < view.size();
}

// Adds the offsets of a run to those of its file, unless there is a gap before it.
void WalkedClaims::add_offsets(const FrameRun& run) {
  std::vector<std::uint64_t>& offsets = file_offsets_;
  const bool is_next = !offsets.empty() && offsets.back() == run.offsets.front();
  if (!is_next) return offsets.clear();
  offsets.insert(offsets.end(), run.offsets.begin() + 1, run.offsets.end());
}

// Keeps the offsets in a remote file, which are its index, unless there is a gap.
void WalkedClaims::end_file() {
  const bool is_whole = !file_offsets_.empty() && file_offsets_.back() == view_->size();
  if (view_->requests() == nullptr || !is_whole) return;
  const std::lock_guard lock(mutex_);
  offsets_.push_back({file_, std::move(file_offsets_)});
}

// Walks the frames of a batch, so that gaps are reported with their batch. False after
// the last frame.
bool WalkedClaims::walk() {
  install_guard();
  FrameRun run{file_, record_, {}};
  const auto end_run = [&] {
    if (run.offsets.empty()) return;
    if (view_->requests() != nullptr) add_offsets(run);
    add(std::move(run));
    run = {file_, record_, {}};
  };
  bool is_more = true;
  try {
    Frame frame;
    for (std::uint64_t n = grid_.batch_size - n_current_; n != 0; --n) {
      is_more = walk_.next(&frame);
      if (walk_.has_gaps()) add_gaps(walk_.take_gaps());
      if (!is_more) break;
      read_window_.read_ahead(file_, frame.offset);
      if (!run.offsets.empty() && run.offsets.back() != frame.offset) end_run();
      if (run.offsets.empty()) run.offsets.push_back(frame.offset);
      run.offsets.push_back(frame.end());
    }
  } catch (...) {
    end_run();
    throw;
  }
  end_run();
  return is_more;
}

}  // namespace fastrec
