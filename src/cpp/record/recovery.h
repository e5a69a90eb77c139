// Recovery: a chain of frames that is broken somewhere -> the frames that are proven.
//
//   | A | B | C ########|  | E | F ##      skip:    A  B
//             |-- gap --|       |-gap->    resync:  A  B  E
//
// A frame counts only if both of its ends are proven. The next header, the end of the
// file or its own payload proves its end. So a damaged payload is one lost record if a
// frame follows it; if none does, the length may be wrong, and the gap begins with the
// frame before the break. After a gap, the chain continues at the first frame that both
// checksums prove. If one bit of a header was flipped, both checksums prove which.
//
// A payload may contain a TFRecord file. If the header around it is lost, its frames
// look like any other. So only users who ask for it get a search.
#pragma once

#include <atomic>
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
#include "record/framing.h"

namespace fastrec {

// What is done where the chain is broken.
enum class Recovery : std::uint8_t {
  kNone,    // the Error is thrown
  kSkip,    // the rest of the file is left out
  kResync,  // the chain goes on with the next frame that is proven
  kRepair,  // the same, but a header of which one bit was flipped is read as it was
};

template <>
struct Names<Recovery> {
  static constexpr const char* kAll[] = {"raise", "skip", "resync"};
};

// Bytes of a file, or of the content of a compressed one, that are left out, and why.
struct Gap {
  // The end of a content that nobody has seen.
  static constexpr std::uint64_t kUnknownEnd =
      std::numeric_limits<std::uint64_t>::max();

  std::uint64_t record = 0;  // of the file: the first one behind it
  std::uint64_t begin = 0, end = 0;
  Error error;
};

// A header of which one bit was flipped.
struct HeaderRepair {
  unsigned bit = 0;          // 0 to 95: bit % 8 of byte bit / 8 of the header
  std::uint64_t length = 0;  // that it said before
};

// Finds the one bit to flip in the header at `bytes` for its checksum to match. The
// frame must fit into the `remaining` bytes of the file, and `payload_holds`, called at
// most once, must confirm its payload. CRC-32C detects all two-bit errors at this
// length, so at most one bit matches.
std::optional<HeaderRepair> repair_header(
    const std::uint8_t* bytes, std::uint64_t remaining,
    const std::function<bool(std::uint64_t length)>& payload_holds);

// Returns the first place in [at, end) of `block` with a header that its checksum
// proves, of a frame that fits into the file; otherwise `end`. A header less one byte
// must be readable after `end`. `remaining` counts from the beginning of the block to
// the end of the file, and `end` leaves room for a frame.
std::size_t find_header(Bytes block, std::size_t at, std::size_t end,
                        std::uint64_t remaining);

// The frames of one file after another.
class FrameWalk {
 public:
  // A search ends, with ScanCancelled, when `*cancelled` is set.
  FrameWalk(Recovery recovery, const std::atomic<bool>* cancelled)
      : recovery_(recovery), cancelled_(cancelled) {}

  // Begins to walk `view`, which must stay alive, at frame number `record` of it.
  void start(const FileView& view, std::uint64_t offset = 0, std::uint64_t record = 0);

  // Goes on at another frame of the same file.
  void go_to(std::uint64_t offset, std::uint64_t record);

  // The next frame; false behind the last one. Throws Error where the chain is broken
  // and nothing is to be done about it, or where the file is a compressed one.
  bool next(Frame* frame);

  // The gaps that were found so far, each of them once.
  bool has_gaps() const noexcept { return !gaps_.empty(); }
  std::vector<Gap> take_gaps();

  // Whether `view`, whose first header is wrong, is still a TFRecord file: one flipped
  // bit repairs the header, or both checksums prove a frame that begins in the first
  // kMaxEvidenceBytes.
  bool holds_frames(const FileView& view);
  static constexpr std::uint64_t kMaxEvidenceBytes = std::uint64_t{256} << 20;

  // A frame whose header was read as it was before a bit of it was flipped.
  struct Repaired {
    std::uint64_t record = 0;
    Frame frame;
    unsigned bit = 0;  // as HeaderRepair has it
    Error error;
  };
  // Those that were found so far, each of them once.
  std::vector<Repaired> take_repaired() { return std::exchange(repaired_, {}); }

 private:
  Bytes piece(std::uint64_t offset, std::uint64_t length, Buffer* buffer) const;
  Bytes header_at(std::uint64_t offset);
  Fault check(const Frame& frame);
  bool is_zero_from(std::uint64_t offset);
  std::optional<Frame> bridge(Fault fault);
  std::optional<Frame> repair(const Fault& fault);
  std::uint64_t find(std::uint64_t offset, std::uint64_t end);
  bool holds(const Frame& frame);
  bool is_worn_out() const noexcept;
  void look_up() const;

  const Recovery recovery_;
  const std::atomic<bool>* const cancelled_;
  const FileView* view_ = nullptr;
  std::uint64_t offset_ = 0;      // of the next header
  std::uint64_t record_ = 0;      // of the frame that comes out next
  std::optional<Frame> pending_;  // the frame before offset_, whose end is not proven
  std::vector<Gap> gaps_;
  std::vector<Repaired> repaired_;
  std::uint64_t n_wasted_ = 0;  // bytes of frames that a search did not prove
  Buffer buffer_, payload_buffer_;
  Bytes block_;  // where the file is read by pread: its bytes from block_begin_ on
  std::uint64_t block_begin_ = 0;
};

// Whether the end of the frame whose payload begins at byte `payload` of `view` is
// proven by the next header, or is the end of the file. Throws IoError.
bool is_end_proven(const FileView& view, std::uint64_t payload);

// The Error for a fault that stopped the walk through `view` after `n_records` whole
// ones. A first header that is wrong is described by what the file looks like; a file
// that holds frames is not a compressed one, whatever its first bytes look like.
Error framing_error(const FileView& view, Fault fault, std::uint64_t n_records);

}  // namespace fastrec
