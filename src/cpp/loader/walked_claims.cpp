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
      walk_(recovery, &progress_, FileView::Use::kPeek),
      window_bytes_(windows.first_bytes),
      n_before_(first_step * grid_.batch_size) {}

void WalkedClaims::stop() {
  SearchedClaims::stop();
  progress_.cancelled = true;
}

std::vector<FileOffsets> WalkedClaims::take_offsets() {
  const std::lock_guard lock(mutex_);
  return std::exchange(offsets_, {});
}

void WalkedClaims::locate(Claim* claim) const {
  read_window_.will_read(claim->frames, is_from_start_);
}

bool WalkedClaims::find() {
  const std::uint64_t first_step = current_.step;
  while (file_ < files_->size() && !progress_.cancelled) {
    if (!view_) {
      view_ = files_->open(file_);
      if (files_->is_assumed_plain()) check_plain(*view_);
      offset_ = record_ = 0;
      file_offsets_.assign(1, 0);
      walk_.start(*view_);
      // With the first read, not after it.
      if (view_->requests() != nullptr) read_window_.read_ahead(file_, 0);
    }
    const bool is_scanned = recovery_ == Recovery::kNone && view_->mapping() != nullptr;
    if (!(is_scanned ? scan() : walk())) {
      end_file();
      view_.reset();
      ++file_;
    }
    if (current_.step != first_step) return true;
  }
  const bool is_partial = current_.frames.size() != 0;
  if (is_partial && !grid_.drop_last && !progress_.cancelled) add_claim();
  return false;
}

// Divides the next frames of the file among the claims.
void WalkedClaims::add(std::span<const std::uint64_t> offsets) {
  const std::uint64_t n_frames = offsets.size() - 1;
  std::uint64_t first = std::min(n_before_, n_frames);
  n_before_ -= first;
  while (first < n_frames) {
    FrameRuns& frames = current_.frames;
    const std::uint64_t n =
        std::min(n_frames - first, grid_.batch_size - frames.size());
    frames.add(file_, record_ + first, offsets.subspan(first, n + 1));
    first += n;
    if (frames.size() == grid_.batch_size) add_claim();
  }
  record_ += n_frames;
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
  add(offsets);
  if (is_lost || found.fault) {
    view.check_valid(offset_, std::min(kHeaderBytes, view.size() - offset_));
    throw framing_error(view, found.fault, record_);
  }
  window_bytes_ = std::min(2 * window_bytes_, bytes_max_);
  return offset_ < view.size();
}

// Adds offsets to those of the file, unless there is a gap before them.
void WalkedClaims::add_to_file(std::span<const std::uint64_t> offsets) {
  const bool is_next =
      !file_offsets_.empty() && file_offsets_.back() == offsets.front();
  if (!is_next) return file_offsets_.clear();
  file_offsets_.insert(file_offsets_.end(), offsets.begin() + 1, offsets.end());
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
  std::vector<std::uint64_t> offsets;  // of contiguous frames, and their end
  const auto end_run = [&] {
    if (offsets.empty()) return;
    if (view_->requests() != nullptr) add_to_file(offsets);
    add(offsets);
    offsets.clear();
  };
  bool is_more = true;
  try {
    Frame frame;
    for (std::uint64_t n = grid_.batch_size - current_.frames.size(); n != 0; --n) {
      is_more = walk_.next(&frame);
      if (walk_.has_gaps()) add_gaps(walk_.take_gaps());
      if (!is_more) break;
      read_window_.read_ahead(file_, frame.offset);
      if (!offsets.empty() && offsets.back() != frame.offset) end_run();
      if (offsets.empty()) offsets.push_back(frame.offset);
      offsets.push_back(frame.end());
    }
  } catch (...) {
    end_run();
    throw;
  }
  end_run();
  return is_more;
}

}  // namespace fastrec
