#include "record/scan.h"

#include <algorithm>
#include <array>

#include "base/in_threads.h"
#include "base/interrupt.h"
#include "base/prefetch.h"
#include "file/guard.h"
#include "record/frame_cursor.h"
#include "record/recovery.h"

namespace fastrec {
namespace {

// Progress is reported, and a cancellation checked, after this many frames.
constexpr unsigned kFramesPerReport = 1024;

// The limit of the search for the first frame of a segment, because each byte may cost
// a checksum, as in a payload of zeros. If the search fails, the chain from the segment
// before is walked through this segment.
constexpr std::uint64_t kMaxSearchBytes = std::uint64_t{256} << 10;

// The size of a read in that search, if the file is not mapped.
constexpr std::uint64_t kSearchBlockBytes = std::uint64_t{64} << 10;

// The size of a window of a mapping, whose pages are released after the scan.
constexpr std::uint64_t kResidentBytes = std::uint64_t{128} << 20;

// For records of at least this size, only the headers are read. On a disk with 1 GB/s,
// 32 threads read 52,000 headers/s, so a header costs as much as 19 KB.
constexpr std::uint64_t kLargeRecordBytes = std::uint64_t{64} << 10;
// A request to a remote store costs as much as 1 MB: 20 ms at 50 MB/s per connection.
constexpr std::uint64_t kLargeRemoteRecordBytes = std::uint64_t{1} << 20;
constexpr unsigned kHeaderThreads = 32;
constexpr std::uint64_t kMinHeaderSegmentBytes = std::uint64_t{4} << 20;

// The frames of one segment, walked from a guessed beginning.
struct Segment {
  std::uint64_t begin = 0, end = 0;    // bytes of the file
  bool is_begin_known = false;         // a frame begins at `begin`
  std::vector<std::uint64_t> offsets;  // frames that begin in [begin, end)
  std::uint64_t next = 0;              // offset of the next frame
  Fault fault;
  bool is_done = false;
  // Buffers appends to `offsets`: the ends of many similar vectors would compete for
  // few cache sets.
  std::array<std::uint64_t, 16> recent{};
  std::size_t n_recent = 0;

  void add(std::uint64_t offset) {
    recent[n_recent++] = offset;
    if (n_recent == recent.size()) flush();
  }
  void flush() {
    if (offsets.empty() && n_recent == recent.size()) {
      // An estimate from the first frames.
      offsets.reserve((end - begin) / ((next - recent[0]) / n_recent + 1) * 9 / 8);
    }
    offsets.insert(offsets.end(), recent.begin(), recent.begin() + n_recent);
    n_recent = 0;
  }

  void end_walk() {
    is_done = true;
    flush();
  }

  // Moves past the next frame, or ends the walk at a fault in its header.
  void pass(const Fault& found, std::uint64_t length) {
    if (found) {
      fault = found;
      return end_walk();
    }
    add(next);
    next += length + kFrameBytes;
    if (next >= end) end_walk();
  }

  std::uint64_t end_of_search() const { return std::min(end, begin + kMaxSearchBytes); }

  // Begins at the first header before end_of_search(), if `found` is one.
  void begin_at(std::uint64_t found) {
    is_done = found >= end_of_search();
    next = is_done ? end : found;
  }

  // Whether the first frame of the segment, or else the end of the walk, is at
  // `offset`.
  bool begins_at(std::uint64_t offset) const {
    return (offsets.empty() ? next : offsets.front()) == offset;
  }
};

// Moves `segment` past one frame of a mapped file.
inline void step(Bytes file, Segment* segment) {
  std::uint64_t length;
  Fault fault =
      check_header(file.data() + segment->next, file.size() - segment->next, &length);
  if (fault) [[unlikely]]
    fault.offset += segment->next;
  segment->pass(fault, length);
  if (!segment->is_done) prefetch(file.data() + segment->next);
}

void walk_in_turn(Bytes file, std::span<Segment> segments, ScanProgress* progress) {
  for (Segment& segment : segments) {
    if (progress->is_cancelled()) return;
    if (segment.is_begin_known) continue;
    const std::uint64_t remaining = file.size() - segment.begin;
    const std::size_t n = static_cast<std::size_t>(
        std::min(segment.end_of_search() - segment.begin,
                 std::max(remaining, kFrameBytes - 1) - (kFrameBytes - 1)));
    const Bytes rest = file.subspan(static_cast<std::size_t>(segment.begin));
    const std::size_t found = find_header(rest, 0, n, remaining);
    segment.begin_at(found < n ? segment.begin + found : segment.end);
  }
  std::size_t n_done = 0;
  while (n_done < segments.size()) {
    std::uint64_t n_bytes = 0;
    for (Segment& segment : segments) n_bytes -= segment.next;
    for (unsigned i = 0; i < kFramesPerReport && n_done < segments.size(); ++i) {
      n_done = 0;
      for (Segment& segment : segments) {
        if (!segment.is_done) step(file, &segment);
        n_done += segment.is_done;
      }
    }
    for (Segment& segment : segments) n_bytes += segment.next;
    progress->add(n_bytes);
    if (progress->is_cancelled()) return;
  }
}

std::vector<Segment> cut(const ScanWindow& window, unsigned n_threads,
                         const ScanShape& shape) {
  const std::uint64_t size = window.end - window.begin;
  const std::uint64_t n_max =
      std::uint64_t{n_threads} * std::max(1u, shape.n_segments_per_thread);
  const std::uint64_t n =
      std::clamp<std::uint64_t>(size / shape.segment_bytes_min, 1, n_max);
  std::vector<Segment> segments(static_cast<std::size_t>(n));
  for (std::uint64_t i = 0; i < n; ++i) {
    Segment& segment = segments[static_cast<std::size_t>(i)];
    segment.begin = segment.next = window.begin + size / n * i;
    segment.end = i + 1 == n ? window.end : window.begin + size / n * (i + 1);
    segment.is_begin_known = i == 0;
    segment.is_done = segment.begin == segment.end;
  }
  return segments;
}

// Joins the segments to one chain that begins with the first segment. `walk` walks a
// segment to its end.
template <typename Walk>
ScanResult stitch(std::vector<Segment>* segments, ScanProgress* progress,
                  const Walk& walk) {
  ScanResult result;
  std::size_t n_frames = 0;
  for (const Segment& segment : *segments) n_frames += segment.offsets.size();
  result.offsets.clear();
  result.offsets.reserve(n_frames + 1);

  std::uint64_t at = segments->front().begin;
  for (Segment& segment : *segments) {
    if (at >= segment.end) continue;  // a frame covers the whole segment
    if (!segment.begins_at(at)) {
      segment.offsets.clear();
      segment.next = at;
      segment.is_begin_known = true;
      segment.fault = {};
      segment.is_done = false;
      walk(&segment);
      if (progress->is_cancelled()) break;
    }
    result.offsets.insert(result.offsets.end(), segment.offsets.begin(),
                          segment.offsets.end());
    at = segment.next;
    if (segment.fault) {
      result.fault = segment.fault;
      break;
    }
  }
  result.offsets.push_back(at);
  return result;
}

// Walks `segment` by reading only the headers.
void walk_headers(const FileView& view, Segment* segment, ScanProgress* progress) {
  const InterruptScope interrupts([progress] { progress->check_cancelled(); });
  if (!segment->is_begin_known) {
    segment->begin_at(FrameCursor(&view, kSearchBlockBytes)
                          .find(segment->begin, segment->end_of_search()));
  }
  FrameCursor cursor(&view, kHeaderBytes);
  while (!segment->is_done) {
    if (progress->is_cancelled()) return;
    const std::uint64_t before = segment->next;
    Frame frame;
    const Fault fault = cursor.read(before, &frame);
    segment->pass(fault, frame.length);
    progress->add(segment->next - before);
  }
}

// Reads only the headers, of many segments in parallel, which is faster than reading
// all of a file with large records. `view` is read by pread.
ScanResult scan_headers(const FileView& view, ScanProgress* progress) {
  std::vector<Segment> segments =
      cut({0, view.size()}, kHeaderThreads, {kMinHeaderSegmentBytes, 1});
  in_threads(segments.size(),
             [&](std::size_t i) { walk_headers(view, &segments[i], progress); });
  return stitch(&segments, progress,
                [&](Segment* segment) { walk_headers(view, segment, progress); });
}

// Whether the first records are large enough to read only the headers.
bool has_large_records(const FileView& view) {
  FrameCursor cursor(&view, kHeaderBytes);
  const std::uint64_t large_bytes =
      view.requests() != nullptr ? kLargeRemoteRecordBytes : kLargeRecordBytes;
  std::uint64_t at = 0;
  for (int i = 0; i < 8; ++i) {
    Frame frame;
    if (cursor.read(at, &frame) || frame.length < large_bytes) return false;
    at = frame.end();
  }
  return true;
}

// The sequential walk, for files that are not mapped or not in memory: disks and
// networks are fastest with a single reader of sequential blocks.
ScanResult scan_in_blocks(const FileView& view, ScanProgress* progress) {
  ScanResult result;
  FrameCursor cursor(&view, std::uint64_t{1} << 20);
  std::uint64_t at = 0, n_reported = 0, requested_end = 0;
  while (at < view.size() && !result.fault) {
    const bool is_next_block = !cursor.has_header(at);
    if (is_next_block) {
      const std::uint64_t ahead_bytes =
          view.requests() != nullptr ? view.requests()->ahead_bytes() : 0;
      if (requested_end < at + ahead_bytes / 2) {
        requested_end = std::max(requested_end, at);
        view.read_ahead(requested_end, at + ahead_bytes - requested_end);
        requested_end = at + ahead_bytes;
      }
    }
    Frame frame;
    result.fault = cursor.read(at, &frame);
    if (is_next_block) {
      progress->add(at - std::exchange(n_reported, at));
      if (progress->is_cancelled()) return result;
    }
    if (!result.fault) result.offsets.push_back(at = frame.end());
  }
  progress->add(at - n_reported);
  return result;
}

}  // namespace

ScanResult scan_mapped(Bytes file, const ScanWindow& window, unsigned n_threads,
                       const ScanShape& shape, ScanProgress* progress) {
  std::vector<Segment> segments = cut(window, n_threads, shape);
  const std::size_t n_groups = std::min<std::size_t>(n_threads, segments.size());
  in_threads(n_groups, [&](std::size_t i) {
    install_guard();
    const std::size_t begin = segments.size() * i / n_groups;
    const std::size_t end = segments.size() * (i + 1) / n_groups;
    walk_in_turn(file, std::span(segments).subspan(begin, end - begin), progress);
  });
  return stitch(&segments, progress,
                [&](Segment* segment) { walk_in_turn(file, {segment, 1}, progress); });
}

ScanResult scan(const FileView& view, unsigned n_threads, ScanProgress* progress) {
  const InterruptScope interrupts([progress] { progress->check_cancelled(); });
  const Mapping* mapping = view.mapping();
  if (mapping != nullptr && mapping->is_resident()) {
    ScanResult result;
    while (result.offsets.back() < view.size() && !result.fault &&
           !progress->cancelled) {
      const std::uint64_t begin = result.offsets.back();
      const ScanWindow window{begin,
                              begin + std::min(kResidentBytes, view.size() - begin)};
      const ScanResult found =
          scan_mapped(mapping->bytes(), window, n_threads, {}, progress);
      result.offsets.insert(result.offsets.end(), found.offsets.begin() + 1,
                            found.offsets.end());
      result.fault = found.fault;
      view.release(begin, window.end - begin);
    }
    view.check_valid(0, view.size());
    return result;
  }
  if (view.size() >= 2 * kMinHeaderSegmentBytes && has_large_records(view)) {
    const auto random = view.reopen_for_random_reads();
    if (random) return scan_headers(*random, progress);
  }
  return scan_in_blocks(view, progress);
}

}  // namespace fastrec
