// Scan: a file -> the offset of every frame in it, with all length checksums proven.
//
// A mapped file is cut into segments, and each segment is walked on its own, from the
// first place that looks like the beginning of a frame. Several segments are walked in
// turn on each thread, so that the wait for one header is spent on the next. Such a
// beginning is a guess: a payload may hold a TFRecord file itself. The stitching is the
// proof. Segment by segment, the chain of frames that began at byte 0 must arrive at
// exactly the guessed beginning; where it does not, the guess is thrown away and the
// chain goes on by itself. So the result is that of the plain walk, always. A window of
// the file, from a frame on, is scanned in the same way.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"

namespace fastrec {

// How far a scan is, and a way to stop it: both for other threads.
struct ScanProgress {
  std::atomic<std::uint64_t> n_bytes{0};  // walked so far, in all scans that share it
  std::atomic<bool> cancelled{false};
};

// A scan was stopped through its ScanProgress.
class ScanCancelled : public std::exception {
 public:
  const char* what() const noexcept override { return "the scan was cancelled"; }
};

struct ScanResult {
  // Where each frame begins, and at last where the chain ends: one entry more than
  // there are whole frames. Without a fault, the chain ends behind the last frame that
  // begins in what was scanned.
  std::vector<std::uint64_t> offsets{0};
  Fault fault;  // what stopped the chain at offsets.back(), if anything did
};

// Walks all frames of `view`. `n_threads` is at least 1. A cancelled scan returns
// early, with a result that means nothing. Throws IoError, and Error where mapped bytes
// were lost.
ScanResult scan(const FileView& view, unsigned n_threads, ScanProgress* progress);

// How a scan cuts a mapped file: the defaults suit files of any size; tests make
// segments small. No result depends on it.
struct ScanShape {
  std::uint64_t segment_bytes_min = std::uint64_t{1} << 20;
  unsigned n_segments_per_thread = 16;
};

// The bytes [begin, end) of a file. A frame begins at `begin`.
struct ScanWindow {
  std::uint64_t begin = 0, end = 0;
};

// Walks the frames that begin in `window`. A cancelled scan returns early, with a
// result that means nothing.
ScanResult scan_mapped(Bytes file, const ScanWindow& window, unsigned n_threads,
                       const ScanShape& shape, ScanProgress* progress);

}  // namespace fastrec
