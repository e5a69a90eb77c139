#include "file/range_requests.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/interrupt.h"
#include "base/process.h"

namespace fastrec {
namespace {

// A waiting reader checks for interrupts at this interval.
constexpr std::chrono::milliseconds kCheckInterval(50);

// Memory of an extent besides its bytes, so that the memory limit also bounds the number
// of small extents.
constexpr std::uint64_t kExtentBytes = 512;

// Bytes that readers wait for may exceed the memory limit by this factor before they
// evict bytes that no reader has read.
constexpr std::uint64_t kMaxExcess = 2;

}  // namespace

std::uint64_t RangeRequests::Extent::cost() const noexcept {
  return n_bytes() + kExtentBytes;
}

RangeRequests::Released::~Released() {
  for (const ExtentPtr& extent : extents) {
    extent->owner.reset();
    extent->failure = nullptr;
  }
}

RangeRequests::RangeRequests(RangeLimits limits, std::vector<FileIdentity> files)
    : process_id_(fastrec::process_id()),
      files_(std::move(files)),
      limits_(limits),
      memory_bytes_(limits.memory_bytes),
      window_bytes_(limits.first_flight_bytes) {
  limits_.first_range_bytes = std::min(limits.first_range_bytes, limits.range_bytes);
}

// The first extent of `file` that ends after `offset`, or an extent of a later file.
RangeRequests::ExtentMap::iterator RangeRequests::first_after(std::size_t file,
                                                              std::uint64_t offset) {
  const auto next = extents_.upper_bound({file, offset});
  if (next == extents_.begin()) return next;
  const auto previous = std::prev(next);
  const bool contains = previous->first.first == file && previous->second->end > offset;
  return contains ? previous : next;
}

// The extent that has all bytes of `range`, if it is filled; else nullptr.
RangeRequests::Extent* RangeRequests::filled(const FileRange& range) {
  const auto found = first_after(range.file, range.begin);
  if (found == extents_.end()) return nullptr;
  Extent* extent = found->second.get();
  const bool has_all = extent->file == range.file && extent->begin <= range.begin &&
                       range.end <= extent->end;
  return has_all && extent->state == State::kFilled ? extent : nullptr;
}

// Queues the missing extents of `range`: as hints, or as demands. Appends all of its
// extents to `*demanded`, in order, unless that is null.
void RangeRequests::cover(const FileRange& range, std::vector<ExtentPtr>* demanded) {
  const std::size_t file = range.file;
  std::uint64_t begin = range.begin;
  auto next = first_after(file, begin);
  while (begin < range.end) {
    const bool is_last = next == extents_.end() || next->first.first != file;
    if (!is_last && next->first.second <= begin) {
      const ExtentPtr& extent = next->second;
      if (demanded == nullptr) {
        want_again(extent.get(), std::min(range.end, extent->end) - begin);
      } else if (extent->state == State::kQueued && !extent->is_demanded) {
        demands_.push_back(extent);
        extent->is_demanded = true;
        wake_fetcher();
      }
      begin = extent->end;
      if (demanded != nullptr) demanded->push_back(extent);
      ++next;
      continue;
    }
    std::uint64_t end = std::min(range.end, begin + limits_.first_range_bytes);
    if (!is_last) end = std::min(end, next->first.second);
    auto extent = std::make_shared<Extent>(FileRange{file, begin, end});
    extent->n_wanted = extent->n_bytes();
    extent->is_demanded = demanded != nullptr;
    // Skipped while it is absent.
    (demanded != nullptr ? demands_ : hints_).push_back(extent);
    extents_.emplace_hint(next, Key{file, begin}, extent);
    extent->state = State::kQueued;
    wake_fetcher();
    begin = end;
    if (demanded != nullptr) demanded->push_back(std::move(extent));
  }
}

void RangeRequests::wake_fetcher() {
  if (n_idle_ != 0) queued_.notify_one();
}

void RangeRequests::provide(std::size_t file, Bytes bytes, Owner owner) {
  if (bytes.empty()) return;
  auto extent = std::make_shared<Extent>(FileRange{file, 0, bytes.size()});
  ExtentList entry{extent};
  extent->state = State::kFilled;
  extent->is_read = true;
  extent->bytes = bytes;
  extent->owner = std::move(owner);
  extent->place = entry.begin();
  const std::lock_guard lock(mutex_);
  if (!extents_.emplace(Key{file, 0}, extent).second) return;
  n_held_bytes_ += extent->cost();
  n_read_bytes_ += extent->cost();
  read_.splice(read_.end(), entry);
}

Bytes RangeRequests::read(std::size_t file, std::uint64_t offset, std::size_t length,
                          Buffer* buffer, Use use) {
  if (fastrec::process_id() != process_id_) {
    throw std::runtime_error(
        "cannot read the remote files of the parent process after a fork; open them in "
        "this process");
  }
  const bool is_small = length < limits_.pinned_bytes_min;
  const MutableBytes room = buffer->room(is_small ? length : 0);
  if (length == 0) return room;
  std::shared_ptr<Pin> pinned;
  if (!is_small) pinned = std::make_shared<Pin>(weak_from_this().lock());
  const FileRange range{file, offset, offset + length};
  std::vector<ExtentPtr> extents;
  Lock lock(mutex_);
  if (Extent* extent = is_small ? filled(range) : nullptr) {  // nearly always
    if (use == Use::kLast) note_read(extent, length);
    const Bytes bytes = extent->bytes.subspan(offset - extent->begin, length);
    std::memcpy(room.data(), bytes.data(), length);
    return room;
  }
  struct ReadersGuard {
    RangeRequests* requests;
    Lock& lock;
    const std::vector<ExtentPtr>& extents;
    ~ReadersGuard() {
      if (!lock) lock.lock();
      for (const ExtentPtr& extent : extents) requests->end_read(extent.get());
    }
  };
  cover(range, &extents);
  for (const ExtentPtr& extent : extents) ++extent->n_readers;
  const ReadersGuard guard{this, lock, extents};
  MutableBytes into;
  for (const ExtentPtr& part : extents) {
    const ExtentPtr extent = wait(lock, part);
    if (extent->end <= offset) continue;  // it was copied as a part of another
    if (into.empty() && pinned && pinned->requests &&
        pin(extent, offset, length, use, pinned.get())) {
      buffer->hold(std::move(pinned));
      return extent->bytes.subspan(offset - extent->begin, length);
    }
    const auto n = static_cast<std::size_t>(std::min(range.end, extent->end) - offset);
    const std::uint8_t* bytes = extent->bytes.data() + (offset - extent->begin);
    if (use == Use::kLast) note_read(extent.get(), n);
    lock.unlock();
    if (into.empty()) into = buffer->room(length);
    std::memcpy(into.data(), bytes, n);
    lock.lock();
    into = into.subspan(n);
    offset += n;
    if (offset == range.end) break;  // more parts may be merged into this one
  }
  return buffer->room(length);
}

// Pins the bytes of a filled extent, if it has all of them and slack on both sides. They
// count as unread until the reader has used them.
bool RangeRequests::pin(const ExtentPtr& extent, std::uint64_t offset,
                        std::uint64_t length, Use use, Pin* pin) {
  if (offset < extent->begin + Buffer::kSlackBytes ||
      offset + length + Buffer::kSlackBytes > extent->end) {
    return false;
  }
  pin->n_bytes = use == Use::kLast ? length : 0;
  want_again(extent.get(), pin->n_bytes);
  ++extent->n_readers;
  pin->extent = extent;
  return true;
}

RangeRequests::Pin::~Pin() {
  if (!extent || fastrec::process_id() != requests->process_id_) return;
  const std::lock_guard lock(requests->mutex_);
  requests->note_read(extent.get(), n_bytes);
  requests->end_read(extent.get());
  extent.reset();  // a fetcher releases the bytes
}

// Notes that a reader needs an extent no longer.
void RangeRequests::end_read(Extent* extent) {
  if (extent->merged_into) extent = extent->merged_into.get();
  if (--extent->n_readers == 0 && extent->state == State::kFailed) {
    released_.splice(released_.end(), failed_, extent->place);
  }
}

// Waits until `part`, or the extent that it is merged into, is filled; returns that.
RangeRequests::ExtentPtr RangeRequests::wait(Lock& lock, const ExtentPtr& part) {
  using Clock = std::chrono::steady_clock;
  const auto extent = [&part]() -> const ExtentPtr& {
    return part->merged_into ? part->merged_into : part;
  };
  if (extent()->state == State::kFilled) return extent();
  const Clock::time_point began = Clock::now();
  auto check_at = began + kCheckInterval;
  while (extent()->state != State::kFilled) {
    if (extent()->failure) std::rethrow_exception(extent()->failure);
    if (is_stopped_) {
      throw std::runtime_error("cannot read remote files: their threads have ended");
    }
    if (answered_.wait_until(lock, check_at) == std::cv_status::timeout) {
      lock.unlock();
      check_interrupt();
      lock.lock();
      check_at = Clock::now() + kCheckInterval;
    }
  }
  counts_.waiting += Clock::now() - began;
  return extent();
}

std::size_t RangeRequests::copy(std::span<const FileRange> ranges, MutableBytes into) {
  if (fastrec::process_id() != process_id_) return 0;
  std::vector<Extent*> extents;
  extents.reserve(ranges.size());
  {
    const std::lock_guard lock(mutex_);
    for (const FileRange& range : ranges) {
      Extent* extent = filled(range);
      if (extent == nullptr) break;
      ++extent->n_readers;  // no longer evicted
      extents.push_back(extent);
    }
  }
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::uint64_t begin = ranges[i].begin - extents[i]->begin;
    const Bytes bytes = extents[i]->bytes.subspan(begin, ranges[i].n_bytes());
    std::memcpy(into.data(), bytes.data(), bytes.size());
    into = into.subspan(bytes.size());
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    note_read(extents[i], ranges[i].n_bytes());
    end_read(extents[i]);
  }
  return extents.size();
}

void RangeRequests::read_ahead(std::span<const FileRange> ranges) noexcept {
  if (fastrec::process_id() != process_id_) return;
  const std::lock_guard lock(mutex_);
  try {
    for (const FileRange& range : ranges) cover(range, nullptr);
  } catch (const std::bad_alloc&) {
    return;  // read() requests what is missing
  }
}

void RangeRequests::set_memory_bytes(std::uint64_t memory_bytes) {
  const std::lock_guard lock(mutex_);
  memory_bytes_ = memory_bytes;
  queued_.notify_all();
}

void RangeRequests::withdraw_hints() {
  if (fastrec::process_id() != process_id_) return;
  const std::lock_guard lock(mutex_);
  for (const ExtentPtr& extent : hints_) {
    if (extent->is_hint()) remove(extent.get());
  }
  hints_.clear();
  for (const ExtentPtr& extent : in_flight_) extent->n_wanted = 0;
  while (!unread_.empty()) {
    unread_.front()->n_wanted = 0;
    note_read(unread_.front().get(), 0);
  }
}

// Notes that `n_bytes` of an extent were read.
void RangeRequests::note_read(Extent* extent, std::uint64_t n_bytes) {
  extent->n_read += n_bytes;
  if (extent->n_read < extent->n_wanted) return;
  read_.splice(read_.end(), extent->is_read ? read_ : unread_, extent->place);
  if (extent->is_read) return;
  extent->is_read = true;
  n_read_bytes_ += extent->cost();
  if (!hints_.empty()) wake_fetcher();
}

// Notes that `n_bytes` of an extent will be read, perhaps once more.
void RangeRequests::want_again(Extent* extent, std::uint64_t n_bytes) {
  if (!extent->is_read) return;
  extent->is_read = false;
  extent->n_wanted = extent->n_read + n_bytes;
  n_read_bytes_ -= extent->cost();
  unread_.splice(unread_.end(), read_, extent->place);
}

// The next extent to request, which is no longer in its queue; nullptr if there is none.
RangeRequests::ExtentPtr RangeRequests::next_queued() {
  while (!demands_.empty()) {
    ExtentPtr extent = std::move(demands_.front());
    demands_.pop_front();
    if (extent->state == State::kQueued) return extent;
  }
  while (!hints_.empty()) {
    ExtentPtr extent = hints_.front();
    if (extent->is_hint() && !has_room()) return nullptr;
    hints_.pop_front();
    if (extent->is_hint()) return extent;
  }
  return nullptr;
}

// The size of the next range.
std::uint64_t RangeRequests::range_bytes() const {
  const std::uint64_t n_bytes = counts_.n_bytes / 4;
  return std::clamp(n_bytes, limits_.first_range_bytes, limits_.range_bytes);
}

// Whether a range of hints may be requested now.
bool RangeRequests::has_room() const {
  const std::uint64_t n_bytes = range_bytes() + kExtentBytes;
  if (n_flight_bytes_ != 0 && n_flight_bytes_ + n_bytes > window_bytes_) return false;
  const std::uint64_t n_unread = n_held_bytes_ - n_read_bytes_;
  return n_unread == 0 || n_unread + n_bytes <= memory_bytes_;
}

// Extends a queued extent by the queued extents next to it.
void RangeRequests::merge_neighbors(const ExtentPtr& extent) {
  const std::uint64_t bytes_max = range_bytes();
  const auto fits = [&](const Extent& left, const Extent& right) {
    return left.state == State::kQueued && right.state == State::kQueued &&
           left.file == right.file && right.begin - left.end <= limits_.gap_bytes &&
           right.end - left.begin <= bytes_max;
  };
  const auto self = extents_.find({extent->file, extent->begin});
  while (std::next(self) != extents_.end() && fits(*extent, *std::next(self)->second)) {
    merge(extent, std::next(self));
  }
  const std::uint64_t begin = extent->begin;
  while (self != extents_.begin() && fits(*std::prev(self)->second, *extent)) {
    merge(extent, std::prev(self));
  }
  if (extent->begin == begin) return;
  auto node = extents_.extract(self);  // keeps its memory
  node.key().second = extent->begin;
  extents_.insert(std::move(node));
}

// Merges a queued neighbor into an extent that is about to be in flight, and is then
// never merged itself.
void RangeRequests::merge(const ExtentPtr& extent, ExtentMap::iterator neighbor) {
  const ExtentPtr other = neighbor->second;
  remove(other.get());
  extent->begin = std::min(extent->begin, other->begin);
  extent->end = std::max(extent->end, other->end);
  extent->n_wanted += other->n_wanted;
  extent->is_demanded |= other->is_demanded;
  extent->n_readers += other->n_readers;
  other->merged_into = extent;
}

// Evicts extents until `cost` more bytes fit into the memory limit, if possible.
void RangeRequests::make_room(std::uint64_t cost, bool is_demanded) {
  const auto is_full = [&](std::uint64_t limit) {
    return n_held_bytes_ + cost > limit;
  };
  while (is_full(memory_bytes_) && evict(&read_)) continue;
  if (!is_demanded) return;
  while (is_full(kMaxExcess * memory_bytes_) && evict(&unread_)) continue;
}

// Evicts the first extent of `*list` without readers; returns false if all have readers.
bool RangeRequests::evict(ExtentList* list) {
  const auto found = std::ranges::find_if(
      *list, [](const ExtentPtr& extent) { return extent->n_readers == 0; });
  if (found == list->end()) return false;
  Extent* extent = found->get();
  n_held_bytes_ -= extent->cost();
  if (extent->is_read) n_read_bytes_ -= extent->cost();
  remove(extent);
  released_.splice(released_.end(), *list, found);
  return true;
}

void RangeRequests::remove(Extent* extent) {
  extent->state = State::kAbsent;
  extents_.erase({extent->file, extent->begin});
}

// The extent of the request `id`; nullptr if the request is not in flight.
RangeRequests::ExtentPtr RangeRequests::in_flight(std::uint64_t id) const {
  const auto found = std::ranges::find_if(
      in_flight_, [id](const ExtentPtr& extent) { return extent->id == id; });
  return found == in_flight_.end() ? nullptr : *found;
}

std::optional<RangeRequest> RangeRequests::take(
    std::optional<std::chrono::milliseconds> patience) {
  if (fastrec::process_id() != process_id_) return std::nullopt;
  ExtentList entry(1);  // of in_flight_
  Released released;    // after the lock
  Lock lock(mutex_);
  ExtentPtr extent;
  bool is_late = false;
  while (!is_stopped_ && !(extent = next_queued())) {
    if (is_late && (n_idle_ != 0 || patience->count() == 0)) return std::nullopt;
    ++n_idle_;
    if (patience) {
      is_late = queued_.wait_for(lock, *patience) == std::cv_status::timeout;
    } else {
      queued_.wait(lock);
    }
    --n_idle_;
  }
  if (is_stopped_) return std::nullopt;
  merge_neighbors(extent);
  make_room(extent->cost(), extent->is_demanded);
  extent->state = State::kInFlight;
  extent->taken_at = std::chrono::steady_clock::now();
  extent->id = next_id_++;
  n_held_bytes_ += extent->cost();
  n_flight_bytes_ += extent->cost();
  entry.front() = extent;
  extent->place = entry.begin();
  in_flight_.splice(in_flight_.end(), entry);
  released.extents.swap(released_);
  if (!demands_.empty() || (!hints_.empty() && has_room())) wake_fetcher();
  return RangeRequest{*extent, extent->id, n_idle_ == 0};
}

void RangeRequests::complete(std::uint64_t id, Bytes bytes, Owner owner) {
  const std::lock_guard lock(mutex_);
  const ExtentPtr extent = in_flight(id);
  if (!extent) return;
  const std::uint64_t n_bytes = extent->n_bytes();
  if (bytes.size() != n_bytes) {
    throw std::invalid_argument("a range of " + std::to_string(n_bytes) +
                                " bytes was requested, got " +
                                std::to_string(bytes.size()));
  }
  n_flight_bytes_ -= extent->cost();
  const bool is_late =
      std::chrono::steady_clock::now() - extent->taken_at > limits_.answer_time;
  window_bytes_ = is_late
                      ? std::max(limits_.range_bytes,
                                 window_bytes_ - std::min(n_bytes / 2, window_bytes_))
                      : std::min(limits_.flight_bytes, window_bytes_ + n_bytes);
  extent->bytes = bytes;
  extent->owner = std::move(owner);
  extent->state = State::kFilled;
  unread_.splice(unread_.end(), in_flight_, extent->place);
  note_read(extent.get(), 0);
  ++counts_.n_requests;
  counts_.n_bytes += n_bytes;
  answered_.notify_all();
  if (!hints_.empty()) wake_fetcher();
}

void RangeRequests::fail(std::uint64_t id, std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  const ExtentPtr extent = in_flight(id);
  if (!extent) return;
  n_held_bytes_ -= extent->cost();
  n_flight_bytes_ -= extent->cost();
  remove(extent.get());
  extent->state = State::kFailed;
  if (extent->n_readers != 0) {
    extent->failure = std::move(failure);
    failed_.splice(failed_.end(), in_flight_, extent->place);
  } else {
    in_flight_.erase(extent->place);
  }
  answered_.notify_all();
  if (!hints_.empty()) wake_fetcher();
}

void RangeRequests::stop() {
  if (fastrec::process_id() != process_id_) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  queued_.notify_all();
  answered_.notify_all();
}

RangeRequests::Counts RangeRequests::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace fastrec
