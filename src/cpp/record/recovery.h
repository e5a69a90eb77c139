// Recovery: a broken chain of frames -> the frames that can be verified.
//
//   | A | B | C ########|  | E | F ##      skip:    A  B
//             |-- gap --|       |-gap->    resync:  A  B  E
//
// A frame counts only if both of its ends are verified. Its end is verified by the next
// header, the end of the file, or its own payload. So a damaged payload followed by a
// frame is one lost record. If no frame follows, the length may be wrong, and the gap
// includes the frame before the break. After a gap, the chain continues at the first
// frame with two valid checksums. A header with one flipped bit can be repaired,
// because both checksums verify the repair.
//
// A payload may contain a TFRecord file. If the header around it is lost, its frames
// look like any other, so a search is opt-in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/names.h"
#include "file/file_view.h"
#include "record/frame_cursor.h"
#include "record/framing.h"
#include "record/scan.h"

namespace fastrec {

// What to do with a broken chain.
enum class Recovery : std::uint8_t {
  kNone,    // throw the Error
  kSkip,    // skip the rest of the file
  kResync,  // continue at the next verified frame
  kRepair,  // the same, and repair headers with one flipped bit
};

template <>
struct Names<Recovery> {
  static constexpr const char* kAll[] = {"raise", "skip", "resync"};
};

// A skipped range of a file, or of the content of a compressed file, and the reason.
struct SkippedSpan {
  // The end of compressed content that was not read to its end.
  static constexpr std::uint64_t kUnknownEnd =
      std::numeric_limits<std::uint64_t>::max();

  std::uint64_t record = 0;  // number of the first record after the gap
  std::uint64_t begin = 0, end = 0;
  Error error;
};

// The repair of a header with one flipped bit.
struct HeaderRepair {
  unsigned bit = 0;          // 0 to 95: bit % 8 of byte bit / 8 of the header
  std::uint64_t length = 0;  // after the repair
};

// Finds the bit whose flip makes the checksum of the header at `bytes` valid. The frame
// must fit into the `remaining` bytes of the file, and `is_payload_intact`, called at
// most once, must confirm its payload. CRC-32C detects all two-bit errors at this
// length, so at most one bit matches.
std::optional<HeaderRepair> repair_header(
    const std::uint8_t* bytes, std::uint64_t remaining,
    const std::function<bool(std::uint64_t length)>& is_payload_intact);

// Returns the first offset in [at, end) of `block` with a valid header of a frame that
// fits into the file; otherwise `end`. kHeaderBytes - 1 bytes must be readable after
// `end`. The file has `remaining` bytes from the beginning of the block on, which is at
// least end - 1 + kFrameBytes.
std::size_t find_header(Bytes block, std::size_t at, std::size_t end,
                        std::uint64_t remaining);

// Iterates over the frames of a file.
class FrameWalk {
 public:
  // next() throws ScanCancelled if it is cancelled through `progress`, if any. With
  // kPeek, the caller reads the frames afterwards.
  explicit FrameWalk(Recovery recovery, const ScanProgress* progress = nullptr,
                     FileView::Use use = FileView::Use::kLast);

  // Starts at frame number `record` of `view`, which must stay alive.
  void start(const FileView& view, std::uint64_t offset = 0, std::uint64_t record = 0);

  // Moves to another frame of the same file.
  void seek(std::uint64_t offset, std::uint64_t record);

  // Reads the next frame. Returns false after the last one. Throws Error if the chain
  // is broken and the recovery is kNone, or if the file is compressed.
  bool next(Frame* frame);

  // The gaps found since the last call.
  bool has_gaps() const noexcept { return !gaps_.empty(); }
  std::vector<SkippedSpan> take_gaps();

  // Whether `view` is a TFRecord file even if its first header is invalid: the header
  // can be repaired, or a verified frame begins in the first kMaxEvidenceBytes.
  bool holds_frames(const FileView& view);
  static constexpr std::uint64_t kMaxEvidenceBytes = std::uint64_t{256} << 20;

  // A frame with a repaired header.
  struct Repaired {
    std::uint64_t record = 0;
    Frame frame;
    unsigned bit = 0;  // see HeaderRepair
    Error error;
  };
  // The repaired frames found since the last call.
  std::vector<Repaired> take_repaired() { return std::exchange(repaired_, {}); }

 private:
  std::optional<Frame> bridge(Fault fault);
  std::optional<Frame> repair(const Fault& fault);
  std::uint64_t find(std::uint64_t offset, std::uint64_t end);
  bool is_intact(const Frame& frame);
  bool is_exhausted() const noexcept;

  const Recovery recovery_;
  const FileView* view_ = nullptr;
  std::uint64_t offset_ = 0;      // of the next header
  std::uint64_t record_ = 0;      // number of the frame to return next
  std::optional<Frame> pending_;  // the frame before offset_, with an unverified end
  std::vector<SkippedSpan> gaps_;
  std::vector<Repaired> repaired_;
  std::uint64_t n_wasted_ = 0;  // bytes of candidates with invalid payloads
  FrameCursor cursor_;
};

// Whether the frame whose payload begins at byte `payload` of `view` ends at a valid
// header or at the end of the file. Throws IoError.
bool is_end_proven(const FileView& view, std::uint64_t payload);

// The Error for a fault in the framing of `view` after `n_records` records. If the
// first header is invalid, the message depends on the kind of file. A file with
// verified frames is never reported as compressed.
Error framing_error(const FileView& view, Fault fault, std::uint64_t n_records);

// Throws Error if a file that was assumed to be plain is compressed.
void check_plain(const FileView& view);

}  // namespace fastrec
