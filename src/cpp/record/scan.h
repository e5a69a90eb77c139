// Scan: a file -> the offsets of its frames, with all length checksums verified.
//
// A mapped file is divided into segments. Each segment is walked separately, from the
// first bytes that look like a frame; each thread alternates between several segments,
// so that their cache misses overlap. The first frame of a segment is a guess, because
// a payload may contain a TFRecord file. Stitching verifies it: the chain of frames
// from byte 0 must reach exactly that frame; otherwise the guess is discarded and the
// chain is walked through the segment. So the result always equals that of a sequential
// walk. A window of a file is scanned in the same way.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"

namespace fastrec {

// Thrown if a scan is cancelled through its ScanProgress.
class ScanCancelled : public std::exception {
 public:
  const char* what() const noexcept override { return "the scan was cancelled"; }
};

// Lets other threads monitor and cancel a scan.
struct ScanProgress {
  std::atomic<std::uint64_t> n_bytes{0};  // scanned so far, by all scans that share it
  std::atomic<bool> cancelled{false};

  void add(std::uint64_t n) { n_bytes.fetch_add(n, std::memory_order_relaxed); }
  bool is_cancelled() const { return cancelled.load(std::memory_order_relaxed); }
  void check_cancelled() const {
    if (is_cancelled()) throw ScanCancelled();
  }
};

struct ScanResult {
  // The beginning of each complete frame, and the end of the last one, which may be
  // after the end of the scanned window.
  std::vector<std::uint64_t> offsets{0};
  Fault fault;  // at offsets.back(), if the chain is broken there
};

// Scans all frames of `view`. `n_threads` is at least 1. A cancelled scan returns early
// with an unspecified result. Throws IoError, and Error if mapped pages were lost.
ScanResult scan(const FileView& view, unsigned n_threads, ScanProgress* progress);

// How to divide a mapped file into segments. Does not affect the result; tests use
// small segments.
struct ScanShape {
  std::uint64_t segment_bytes_min = std::uint64_t{1} << 20;
  unsigned n_segments_per_thread = 16;
};

// The bytes [begin, end) of a file. A frame begins at `begin`.
struct ScanWindow {
  std::uint64_t begin = 0, end = 0;
};

// Scans the frames that begin in `window`. A cancelled scan returns early with an
// unspecified result, whose `offsets` begin with that of the window.
ScanResult scan_mapped(Bytes file, const ScanWindow& window, unsigned n_threads,
                       const ScanShape& shape, ScanProgress* progress);

}  // namespace fastrec
