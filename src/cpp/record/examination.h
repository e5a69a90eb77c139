// Examination: a file, or the content of a compressed file -> the number of verified
// records, and the damage.
//
//   piece 0         | piece 1         | piece 2         |
//   | A | B | C   | D | E | #### | F | G   | H | I | J |
//
// Threads examine the pieces of a file in any order, each from the first bytes that
// look like a frame. This guess is verified as in record/scan.h: if the chain of frames
// from byte 0 does not reach it, the piece is examined again. A FrameWalk repairs or
// bridges a broken chain, up to the next piece that begins at one of its frames. So the
// result is the same as that of a sequential walk, and nearly every byte is read once.
//
// Memory grows with the pieces and findings, not with the records. Files are read by
// pread, which is faster for a single pass.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"
#include "record/frame_cursor.h"
#include "record/recovery.h"
#include "record/scan.h"
#include "record/stream.h"

namespace fastrec {

// A damaged range of bytes.
struct Finding {
  enum class Kind : std::uint8_t {
    kRecord,    // one record with verified ends and a damaged payload
    kGap,       // an unknown number of records
    kRepaired,  // one record with a flipped bit in its header
  };
  Kind kind;
  std::uint64_t begin = 0, end = 0;
  unsigned bit = 0;  // kRepaired: see HeaderRepair
  Error error;
};

struct Findings {
  std::uint64_t n_records = 0;    // verified by both checksums, including repaired ones
  std::vector<Finding> findings;  // in file order
};

class Examination {
 public:
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;

  // Opens the file. Throws IoError.
  explicit Examination(std::string path, std::uint64_t piece_bytes = kPieceBytes);

  std::uint64_t n_bytes() const noexcept { return view_.size(); }
  std::size_t n_pieces() const noexcept { return pieces_.size(); }

  // Examines piece `number`. Call once for each piece, on any thread. Throws IoError
  // and ScanCancelled.
  void examine(std::size_t number, ScanProgress* progress);

  // Call after all pieces. Throws IoError, ScanCancelled, and Error if the file is
  // compressed.
  Findings finish(ScanProgress* progress);

 private:
  struct Checked {
    Frame frame;
    Fault fault;  // of the payload
  };
  struct Piece {
    std::uint64_t begin = 0, end = 0;  // bytes of the file
    std::uint64_t first = 0;           // offset of the first frame
    std::uint64_t next = 0;            // offset of the next frame
    bool is_broken = false;            // at `next`
    std::uint64_t n_frames = 0;        // without the last one
    std::vector<std::pair<std::uint64_t, Checked>> damaged = {};  // of these, by number
    std::optional<Checked> last = {};

    void count_last();
    void add(const Checked& checked);
    void add(const Piece& following);
  };

  FrameCursor make_cursor(ScanProgress* progress) const;
  static Checked checked(FrameCursor* cursor, const Frame& frame);
  static void walk(FrameCursor* cursor, Piece* piece);

  FileView view_;
  std::vector<Piece> pieces_;
};

// The same for a compressed file, whose stream must have a recovery. If the framing is
// broken, the rest of the content is a gap, without search or repair.
Findings examine(FrameStream* stream, const std::string& name);

}  // namespace fastrec
