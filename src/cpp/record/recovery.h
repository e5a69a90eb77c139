// Recovery: a chain of frames that is broken somewhere -> the frames that are proven.
//
//   | A | B | C ########|  | E | F ##      skip:    A  B
//             |-- gap --|       |-gap->    resync:  A  B  E
//
// A frame is taken for one only if both of its ends are proven. What proves its end is
// the next header, the end of the file, or its own payload: a payload that is damaged
// is one lost record where a frame follows it, but where none does, the length may be
// wrong or bytes may be missing, and the gap begins with the frame before the break.
// Behind a gap, the chain begins anew with the first frame that both of its checksums
// prove. Where it breaks because one bit of a header was flipped, both checksums prove
// which.
//
// A payload may hold a TFRecord file itself. If the header around it is lost, its
// frames are as well proven as any: so searching is for those who ask for it.
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

// Finds the one bit of the header at `bytes` that has to be flipped for its checksum to
// match, of a frame that fits into the `remaining` bytes of the file and whose payload
// is what its own checksum says: which `payload_holds` tells of a length, and is asked
// once at most. No two bits would do, so far apart are the checksums of lengths.
std::optional<HeaderRepair> repair_header(
    const std::uint8_t* bytes, std::uint64_t remaining,
    const std::function<bool(std::uint64_t length)>& payload_holds);

// Where in `block`, from byte `at` and before byte `end` of it, the first header is
// that its checksum proves, of a frame that fits into the file; `end` if there is none.
// After `end`, a header less one byte must be readable. `remaining` counts from the
// beginning of the block to the end of the file, and `end` leaves room for a frame.
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

  // Whether `view`, whose first header is wrong, is a TFRecord file nevertheless: that
  // header is proven once one bit of it is flipped, or both checksums prove a frame
  // that begins in the first kMaxEvidenceBytes.
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
