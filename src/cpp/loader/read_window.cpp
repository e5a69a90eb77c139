#include "loader/read_window.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace fastrec {
namespace {

// Pages are released in pieces of this size, because each release interrupts all other
// threads of the process (a TLB shootdown).
constexpr std::uint64_t kPieceBytes = std::uint64_t{16} << 20;

// The kernel faults in about this many bytes around a single record. Releasing shorter
// runs costs more than reading them again.
constexpr std::uint64_t kMinRunBytes = std::uint64_t{64} << 10;

}  // namespace

void ReadWindow::read_ahead(std::size_t file, std::uint64_t offset) {
  const std::unique_lock lock(request_mutex_, std::try_to_lock);
  if (!lock || file < requested_file_) return;
  const std::uint64_t begin =
      file == requested_file_ ? std::max(requested_end_, offset) : offset;
  const RangeRequests* requests = files_->requests();
  const std::uint64_t ahead_bytes = requests ? requests->ahead_bytes() : kAheadBytes;
  const std::uint64_t end = offset + ahead_bytes;
  if (begin + ahead_bytes / 2 > end) return;  // half of the request is still ahead
  try {
    request(file, begin, end);
  } catch (const std::exception&) {
    return;  // the thread that reads these bytes reports it
  }
}

// Prefetches [begin, end) of `file`, and continues in the next files past its end.
void ReadWindow::request(std::size_t file, std::uint64_t begin, std::uint64_t end) {
  for (; file <= end_.first && file < files_->size(); ++file) {
    const auto view = files_->open(file);
    requested_file_ = file;
    requested_end_ = std::min(end, file < end_.first ? view->size() : end_.second);
    if (begin < requested_end_) view->will_need(begin, requested_end_ - begin);
    if (end <= view->size()) return;
    end -= view->size();
    begin = 0;
  }
}

void ReadWindow::will_read(const FrameRuns& frames, bool is_in_order) {
  for (const FrameRun& run : frames.runs) {
    if (run.n_bytes() < kMinRunBytes) continue;
    try {
      auto view = files_->open(run.file);
      if (view->mapping() == nullptr) continue;
      add({run.begin, run.end, std::move(view)}, is_in_order);
    } catch (const std::exception&) {
      return;  // the thread that reads these bytes reports it
    }
  }
}

void ReadWindow::add(const Range& range, bool is_in_order) {
  const std::lock_guard lock(ranges_mutex_);
  const std::uint64_t n = range.end - range.begin;
  if (is_in_order && n_first_bytes_ < kFirstBytes) {
    n_first_bytes_ += n;
    return;
  }
  Range* last = ranges_.empty() ? nullptr : &ranges_.back();
  const std::uint64_t n_before = last == nullptr ? 0 : last->end - last->begin;
  if (last != nullptr && last->view == range.view &&
      std::max(last->end, range.end) - std::min(last->begin, range.begin) <=
          kPieceBytes) {
    last->begin = std::min(last->begin, range.begin);
    last->end = std::max(last->end, range.end);
    n_bytes_ += last->end - last->begin - n_before;
  } else {
    ranges_.push_back(range);
    n_bytes_ += n;
  }
  while (n_bytes_ > kKeptBytes && ranges_.size() > 1) {
    const Range& first = ranges_.front();
    first.view->release(first.begin, first.end - first.begin);
    n_bytes_ -= first.end - first.begin;
    ranges_.pop_front();
  }
}

}  // namespace fastrec
