#include "record/scan.h"

#include <algorithm>
#include <array>
#include <exception>
#include <system_error>
#include <thread>

#include "file/guard.h"
#include "record/framing.h"

namespace fastrec {
namespace {

// Progress is told, and a cancellation seen, once in this many frames.
constexpr unsigned kFramesPerReport = 1024;

// How far a beginning is searched for. Every byte of it may cost a checksum, as in a
// payload of zeros, and a segment without a beginning is walked all the same.
constexpr std::uint64_t kMostSearchBytes = std::uint64_t{256} << 10;

// What is scanned of a mapping before its pages are released.
constexpr std::uint64_t kResidentBytes = std::uint64_t{128} << 20;

// The frames of one segment, walked from a guessed beginning.
struct Segment {
  std::uint64_t begin = 0, end = 0;    // bytes of the file
  bool is_begin_known = false;         // a frame begins at `begin`
  std::vector<std::uint64_t> offsets;  // frames that begin in [begin, end)
  std::uint64_t next = 0;              // where the chain stands
  Fault fault;
  bool is_done = false;
  // The offsets that come next. Vectors of many segments, all alike, would grow in
  // memory that shares few places of the cache.
  std::array<std::uint64_t, 16> recent{};
  std::size_t n_recent = 0;

  void add(std::uint64_t offset) {
    recent[n_recent++] = offset;
    if (n_recent == recent.size()) flush();
  }
  void flush() {
    if (offsets.empty() && n_recent == recent.size()) {
      // As many as there are if all frames are like the first.
      offsets.reserve((end - begin) / ((next - recent[0]) / n_recent + 1) * 9 / 8);
    }
    offsets.insert(offsets.end(), recent.begin(), recent.begin() + n_recent);
    n_recent = 0;
  }

  // Whether the walk arrived at `offset`, the first frame or the place after the last.
  bool begins_at(std::uint64_t offset) const {
    return (offsets.empty() ? next : offsets.front()) == offset;
  }
};

// Moves `segment` on by one frame.
inline void step(Bytes file, Segment* segment) {
  const auto end = [segment] {
    segment->is_done = true;
    segment->flush();
  };
  if (segment->next >= segment->end) return end();
  std::uint64_t length;
  if (Fault fault = check_header(file.data() + segment->next,
                                 file.size() - segment->next, &length)) {
    segment->fault = fault;
    return end();
  }
  segment->add(segment->next);
  segment->next += length + kFrameBytes;
#if defined(__GNUC__)
  if (segment->next < segment->end) __builtin_prefetch(file.data() + segment->next);
#endif
}

// Sets `segment->next` to the first header near the beginning of the segment that its
// checksum proves, or to its end.
void find_beginning(Bytes file, Segment* segment) {
  const std::uint64_t search_end =
      std::min(segment->end, segment->begin + kMostSearchBytes);
  for (std::uint64_t at = segment->begin; at < search_end; ++at) {
    const std::uint64_t remaining = file.size() - at;
    if (remaining < kFrameBytes) break;
    // Cheap and almost always decisive: no length of a whole frame in this file has a
    // bit above those of `remaining`.
    if (load_le<std::uint64_t>(file.data() + at) > remaining - kFrameBytes) continue;
    std::uint64_t length;
    if (!check_header(file.data() + at, remaining, &length)) {
      segment->next = at;
      return;
    }
  }
  segment->next = segment->end;
  segment->is_done = true;
}

void walk_in_turn(Bytes file, std::span<Segment> segments, ScanProgress* progress) {
  for (Segment& segment : segments) {
    if (progress->cancelled.load(std::memory_order_relaxed)) return;
    if (!segment.is_begin_known) find_beginning(file, &segment);
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
    progress->n_bytes.fetch_add(n_bytes, std::memory_order_relaxed);
    if (progress->cancelled.load(std::memory_order_relaxed)) return;
  }
}

std::vector<Segment> cut(const ScanWindow& window, unsigned n_threads,
                         const ScanShape& shape) {
  const std::uint64_t size = window.end - window.begin;
  const std::uint64_t n_most =
      std::uint64_t{n_threads} * std::max(1u, shape.n_segments_per_thread);
  const std::uint64_t n =
      std::clamp<std::uint64_t>(size / shape.segment_bytes_min, 1, n_most);
  std::vector<Segment> segments(static_cast<std::size_t>(n));
  for (std::uint64_t i = 0; i < n; ++i) {
    Segment& segment = segments[static_cast<std::size_t>(i)];
    segment.begin = segment.next = window.begin + size / n * i;
    segment.end = i + 1 == n ? window.end : window.begin + size / n * (i + 1);
    segment.is_begin_known = i == 0;
  }
  return segments;
}

// Joins the segments to the one chain that begins with the first of them.
ScanResult stitch(Bytes file, std::vector<Segment>* segments, ScanProgress* progress) {
  ScanResult result;
  std::size_t n_frames = 0;
  for (const Segment& segment : *segments) n_frames += segment.offsets.size();
  result.offsets.clear();
  result.offsets.reserve(n_frames + 1);

  std::uint64_t at = segments->front().begin;
  for (Segment& segment : *segments) {
    if (at >= segment.end) continue;  // a frame reaches over the whole segment
    if (!segment.begins_at(at)) {
      segment.offsets.clear();
      segment.next = at;
      segment.fault = {};
      segment.is_done = false;
      while (!segment.is_done) {
        for (unsigned i = 0; i < kFramesPerReport && !segment.is_done; ++i) {
          step(file, &segment);
        }
        if (progress->cancelled.load(std::memory_order_relaxed)) return result;
      }
    }
    result.offsets.insert(result.offsets.end(), segment.offsets.begin(),
                          segment.offsets.end());
    at = segment.next;
    if (segment.fault) {
      result.fault = segment.fault;
      result.fault.offset += at;
      break;
    }
  }
  result.offsets.push_back(at);
  return result;
}

// The plain walk, for files that are not mapped or not in memory: one reader that
// reads blocks in order is what disks and networks are best at.
ScanResult scan_in_blocks(const FileView& view, ScanProgress* progress) {
  constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;
  ScanResult result;
  Buffer buffer;
  Bytes block;
  std::uint64_t block_begin = 0;
  std::uint64_t at = 0;
  while (at < view.size()) {
    if (at < block_begin || at - block_begin + kHeaderBytes > block.size()) {
      block = view.copy(at, kBlockBytes, &buffer);
      block_begin = at;
      progress->n_bytes.fetch_add(block.size(), std::memory_order_relaxed);
      if (progress->cancelled.load(std::memory_order_relaxed)) return result;
    }
    // A file that was shortened meanwhile has fewer bytes than it said.
    const std::uint64_t n_here = block.size() - (at - block_begin);
    const std::uint64_t remaining = n_here < kHeaderBytes ? n_here : view.size() - at;
    std::uint64_t length;
    result.fault = check_header(block.data() + (at - block_begin), remaining, &length);
    if (result.fault) {
      result.fault.offset += at;
      return result;
    }
    at += length + kFrameBytes;
    result.offsets.push_back(at);
  }
  return result;
}

}  // namespace

ScanResult scan_mapped(Bytes file, const ScanWindow& window, unsigned n_threads,
                       const ScanShape& shape, ScanProgress* progress) {
  std::vector<Segment> segments = cut(window, n_threads, shape);
  const std::size_t n_groups = std::min<std::size_t>(n_threads, segments.size());
  const auto group = [&](std::size_t i) {
    const std::size_t begin = segments.size() * i / n_groups;
    const std::size_t end = segments.size() * (i + 1) / n_groups;
    return std::span(segments).subspan(begin, end - begin);
  };
  // An exception that left a thread would end the process.
  std::vector<std::exception_ptr> failures(n_groups);
  const auto walk = [&](std::size_t i) {
    stand_guard();
    try {
      walk_in_turn(file, group(i), progress);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < n_groups; ++i) {
      try {
        threads.emplace_back(walk, i);
      } catch (const std::system_error&) {
        walk(i);  // no more threads are to be had
      }
    }
    walk(0);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return stitch(file, &segments, progress);
}

ScanResult scan(const FileView& view, unsigned n_threads, ScanProgress* progress) {
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
    view.check_kept(0, view.size());
    return result;
  }
  return scan_in_blocks(view, progress);
}

}  // namespace fastrec
