// Recovery: a chain of frames that is broken somewhere -> the frames that are proven.
//
//   | A | B | C ########|  | E | F ##      skip:    A  B
//             |-- gap --|       |-gap->    resync:  A  B  E
//
// A frame is taken for one only if both of its ends are proven. What proves its end is
// the next header, the end of the file, or its own payload: a payload that is damaged is
// one lost record where a frame follows it, but where none does, the length may be wrong
// or bytes may be missing, and the gap begins with the frame before the break. Behind a
// gap, the chain begins anew with the first frame that both of its checksums prove.
//
// A payload may hold a TFRecord file itself. If the header around it is lost, its frames
// are as well proven as any: so searching is for those who ask for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"
#include "record/framing.h"

namespace fastrec {

// What is done where the chain is broken.
enum class Recovery : std::uint8_t {
  kNone,    // the Error is thrown
  kSkip,    // the rest of the file is left out
  kResync,  // the chain goes on with the next frame that is proven
};

// Bytes of a file, or of the content of a compressed one, that are left out, and why.
struct Gap {
  // The end of a content that nobody has seen.
  static constexpr std::uint64_t kUnknownEnd = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t record = 0;  // of the file: the first one behind it
  std::uint64_t begin = 0, end = 0;
  Error error;
};

// The frames of one file after another.
class FrameWalk {
 public:
  // A search ends, with ScanCancelled, when `*cancelled` is set.
  FrameWalk(Recovery recovery, const std::atomic<bool>* cancelled)
      : recovery_(recovery), cancelled_(cancelled) {}

  // Begins to walk `view`, which must stay alive, at frame number `record` of it.
  void start(const FileView& view, std::uint64_t offset = 0, std::uint64_t record = 0);

  // The next frame; false behind the last one. Throws Error where the chain is broken
  // and nothing is to be done about it, or where the file is a compressed one.
  bool next(Frame* frame);

  // The gaps that were found so far, each of them once.
  bool has_gaps() const noexcept { return !gaps_.empty(); }
  std::vector<Gap> take_gaps();

 private:
  Bytes piece(std::uint64_t offset, std::uint64_t length, Buffer* buffer) const;
  Bytes header_at(std::uint64_t offset);
  Fault check(const Frame& frame);
  bool is_zero_from(std::uint64_t offset);
  void bridge(Fault fault);
  std::uint64_t find(std::uint64_t offset);
  void look_up() const;

  const Recovery recovery_;
  const std::atomic<bool>* const cancelled_;
  const FileView* view_ = nullptr;
  std::uint64_t offset_ = 0;      // of the next header
  std::uint64_t record_ = 0;      // of the frame that comes out next
  std::optional<Frame> pending_;  // the frame before offset_, whose end is not proven
  std::vector<Gap> gaps_;
  Buffer buffer_, payload_buffer_;
  Bytes block_;  // where the file is read by pread: its bytes from block_begin_ on
  std::uint64_t block_begin_ = 0;
};

// The Error for a fault that stopped the walk through `view` after `n_records` whole
// ones. A first header that is wrong is described by what the file looks like.
Error framing_error(const FileView& view, Fault fault, std::uint64_t n_records);

}  // namespace fastrec
