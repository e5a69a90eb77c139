// RangeRequests: the ranges of remote files that readers need, and fetchers provide.
//
//   readers                        extents of a file                     fetchers
//   read_ahead(0, 12 MB)    | read | filled | in flight | queued |   take() -> a range
//   read(0, 512 KB) waits                                           complete(id, bytes)
//
// Readers request bytes: read() waits for them, and read_ahead() is a hint. Both divide
// the bytes into extents, of up to `first_range_bytes`. Fetchers, on other threads, take
// one range at a time and complete it, or fail it. A range is one extent, or several
// queued extents of a file with short gaps between them, which become one extent. The
// first ranges are short, so that the first batch does not wait for bytes of the next.
//
// Bytes that a reader waits for are taken first. Hints wait while the bytes in flight
// and the filled bytes that no reader has read reach the memory limit. Bytes that
// readers have read stay until their room is needed, least recently used first out.
// Bytes that a reader uses, or waits for, are not evicted. Large reads use the bytes of
// an extent in place; those that cross the end of one are copied.
//
// Hints also wait while many bytes are in flight, because requests share the link: the
// bytes that are needed first would come last. The limit is the window: each answer
// within `answer_time` widens it by its size, and each later one narrows it by half.
//
// A failed request throws in the readers that wait for it. The next reader of its bytes
// requests them again. So a failed hint has no effect.
//
// The bytes of an extent, and failures, belong to the fetcher. They are released on the
// thread of a fetcher, in take(), unless the requests are destroyed first: never under
// the lock, because a release may wait for a lock of the fetcher.
//
// An allocation may fail in any function. All of them allocate before they change the
// state, so that no extent is left that readers wait for and no fetcher takes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "file/buffer.h"
#include "file/file.h"

namespace fastrec {

// Bytes [begin, end) of a file.
struct FileRange {
  std::size_t file = 0;
  std::uint64_t begin = 0, end = 0;

  std::uint64_t n_bytes() const noexcept { return end - begin; }
};

struct RangeRequest : FileRange {
  std::uint64_t id = 0;
  // Whether no fetcher waits for the next request. The range may take long, so others
  // must not have to wait for its fetcher.
  bool needs_fetcher = false;
};

// No result depends on these sizes, in bytes.
struct RangeLimits {
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  std::uint64_t range_bytes = std::uint64_t{4} << 20;
  // Extents with gaps up to this size are requested together.
  std::uint64_t gap_bytes = std::uint64_t{64} << 10;
  // The window at first, and at most.
  std::uint64_t first_flight_bytes = std::uint64_t{16} << 20;
  std::uint64_t flight_bytes = std::uint64_t{128} << 20;
  std::chrono::milliseconds answer_time{1000};
  // A range has at most this size, or a quarter of the bytes received before.
  std::uint64_t first_range_bytes = std::uint64_t{256} << 10;
  // Reads of this size use the bytes in place.
  std::uint64_t pinned_bytes_min = std::uint64_t{16} << 10;
};

class RangeRequests : public std::enable_shared_from_this<RangeRequests> {
 public:
  using Owner = std::shared_ptr<const void>;

  // Whether the bytes will be read again soon.
  enum class Use : std::uint8_t { kLast, kPeek };

  // `files` are the versions of the files, which fetchers check for each range.
  explicit RangeRequests(RangeLimits limits = {}, std::vector<FileIdentity> files = {});

  const FileIdentity& identity(std::size_t file) const { return files_.at(file); }

  // The first bytes of a file, if they are known before any reader requests them.
  void provide(std::size_t file, Bytes bytes, Owner owner);

  // For readers, on any thread. read() waits for `length` bytes from `offset` on; all of
  // them must be in the file. `*buffer` holds the bytes until its next use: a copy, or
  // an extent in place, if the requests are owned by a std::shared_ptr. Throws the
  // failure of a request, and what check_interrupt() throws.
  Bytes read(std::size_t file, std::uint64_t offset, std::size_t length, Buffer* buffer,
             Use use = Use::kLast);
  // Copies the first of `ranges`, one after the other, to `into`, without waiting.
  // Returns how many: it stops at a range that is not here in one extent. For the many
  // small records of a shuffled batch, which would take the lock one by one.
  std::size_t copy(std::span<const FileRange> ranges, MutableBytes into);
  // All of the bytes must be in the files.
  void read_ahead(std::span<const FileRange> ranges) noexcept;
  void read_ahead(std::size_t file, std::uint64_t offset,
                  std::uint64_t length) noexcept {
    const FileRange range{file, offset, offset + length};
    read_ahead({&range, 1});
  }
  // How far to read ahead in file order.
  std::uint64_t ahead_bytes() const noexcept { return memory_bytes_ / 2; }
  // Withdraws the hints given so far: a reader that gave them has stopped.
  void withdraw_hints();

  void set_memory_bytes(std::uint64_t memory_bytes);

  // For fetchers, on any thread. take() waits for a request; it returns nothing after
  // stop(), or if `patience` is over and another fetcher waits. With a patience of 0, it
  // does not wait. Releases bytes.
  std::optional<RangeRequest> take(std::optional<std::chrono::milliseconds> patience);
  // `owner` keeps `bytes` alive, which must be as many as requested: otherwise throws a
  // std::invalid_argument.
  void complete(std::uint64_t id, Bytes bytes, Owner owner);
  void fail(std::uint64_t id, std::exception_ptr failure);

  // Ends all waits: read() throws a std::runtime_error. Has no effect in a forked child,
  // which has no fetchers.
  void stop();

  struct Counts {
    std::uint64_t n_requests = 0;  // completed
    std::uint64_t n_bytes = 0;     // of these
    // The time that readers have waited for bytes, summed over their threads.
    std::chrono::nanoseconds waiting{0};
  };
  Counts counts() const;

 private:
  // kAbsent: not in extents_, not even as failed.
  enum class State : std::uint8_t { kAbsent, kQueued, kInFlight, kFilled, kFailed };

  struct Extent;
  using ExtentPtr = std::shared_ptr<Extent>;
  using ExtentList = std::list<ExtentPtr>;
  using Key = std::pair<std::size_t, std::uint64_t>;  // file, begin
  using ExtentMap = std::map<Key, ExtentPtr>;

  struct Extent : FileRange {
    explicit Extent(const FileRange& range) : FileRange(range) {}

    std::uint64_t id = 0;  // of the request, if in flight
    State state = State::kAbsent;
    bool is_demanded = false;                // a reader waits for it
    bool is_read = false;                    // in read_, not in unread_
    std::uint64_t n_wanted = 0, n_read = 0;  // bytes
    std::size_t n_readers = 0;               // in read(), or that hold the bytes
    std::chrono::steady_clock::time_point taken_at;
    ExtentPtr merged_into;  // the extent that requests these bytes, too
    Bytes bytes;            // if filled
    Owner owner;
    std::exception_ptr failure;
    ExtentList::iterator place;  // in one of the lists, unless queued

    bool is_hint() const noexcept { return state == State::kQueued && !is_demanded; }
    std::uint64_t cost() const noexcept;
  };

  using Lock = std::unique_lock<std::mutex>;

  // Bytes of an extent that a reader uses in place.
  struct Pin {
    std::shared_ptr<RangeRequests> requests;
    ExtentPtr extent = nullptr;
    std::uint64_t n_bytes = 0;  // to be noted as read
    ~Pin();
  };

  // Releases the bytes and failures of its extents when it is destroyed.
  struct Released {
    ExtentList extents;
    ~Released();
  };

  ExtentMap::iterator first_after(std::size_t file, std::uint64_t offset);
  Extent* filled(const FileRange& range);
  void cover(const FileRange& range, std::vector<ExtentPtr>* demanded);
  void wake_fetcher();
  ExtentPtr wait(Lock& lock, const ExtentPtr& part);
  void end_read(Extent* extent);
  bool pin(const ExtentPtr& extent, std::uint64_t offset, std::uint64_t length, Use use,
           Pin* pin);
  void note_read(Extent* extent, std::uint64_t n_bytes);
  void want_again(Extent* extent, std::uint64_t n_bytes);
  ExtentPtr next_queued();
  bool has_room() const;
  std::uint64_t range_bytes() const;
  void merge_neighbors(const ExtentPtr& extent);
  void merge(const ExtentPtr& extent, ExtentMap::iterator neighbor);
  void make_room(std::uint64_t cost, bool is_demanded);
  bool evict(ExtentList* list);
  ExtentPtr in_flight(std::uint64_t id) const;
  void remove(Extent* extent);

  const int process_id_;
  const std::vector<FileIdentity> files_;
  RangeLimits limits_;                // except for memory_bytes
  mutable std::mutex mutex_;          // guards everything below
  std::condition_variable queued_;    // wakes fetchers
  std::condition_variable answered_;  // wakes readers
  ExtentMap extents_;                 // do not overlap
  std::deque<ExtentPtr> demands_;     // may hold extents that are no longer queued
  std::deque<ExtentPtr> hints_;       // the same
  ExtentList in_flight_;
  ExtentList unread_, read_;  // filled extents, least recently used first
  ExtentList failed_;         // whose failure readers will throw
  ExtentList released_;       // for the next take()
  std::atomic<std::uint64_t> memory_bytes_;
  std::uint64_t n_held_bytes_ = 0;    // in flight or filled
  std::uint64_t n_flight_bytes_ = 0;  // in flight
  std::uint64_t window_bytes_;        // of hints in flight
  std::uint64_t n_read_bytes_ = 0;    // of the extents in read_
  std::uint64_t next_id_ = 0;
  std::size_t n_idle_ = 0;  // fetchers in take()
  bool is_stopped_ = false;
  Counts counts_;
};

}  // namespace fastrec
