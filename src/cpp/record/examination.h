// Examination: a file, or the content of a compressed one -> how many records both
// checksums prove, and what else there is.
//
//   piece 0         | piece 1         | piece 2         |
//   | A | B | C   | D | E | #### | F | G   | H | I | J |
//
// Threads examine the pieces of a file in any order, each from the first place that
// looks like the beginning of a frame. This guess is checked as in record/scan.h: the
// chain of frames from byte 0 must arrive at it, or the piece is examined again. A
// FrameWalk repairs or bridges a broken chain, up to the next piece that begins at one
// of its frames. So the result is that of the plain walk, and every byte is read once.
//
// Memory grows with the pieces and findings, not with the records. Files are read by
// pread, which is the faster way to read a file once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"
#include "record/framing.h"
#include "record/recovery.h"
#include "record/scan.h"
#include "record/stream.h"

namespace fastrec {

// Bytes of a file that are not as they were written, or not what they should be.
struct Finding {
  enum class Kind : std::uint8_t {
    kRecord,    // one record whose ends are proven, but not its payload
    kGap,       // no frames, or an unknown number of them
    kRepaired,  // one record, of whose header a bit was flipped
  };
  Kind kind;
  std::uint64_t begin = 0, end = 0;
  unsigned bit = 0;  // kRepaired: as HeaderRepair has it
  Error error;
};

struct Findings {
  std::uint64_t n_records = 0;    // that both checksums prove, repaired ones too
  std::vector<Finding> findings;  // in the order of the bytes
};

class Examination {
 public:
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;

  // Opens the file. Throws IoError.
  explicit Examination(std::string path, std::uint64_t piece_bytes = kPieceBytes);

  std::uint64_t n_bytes() const noexcept { return view_.size(); }
  std::size_t n_pieces() const noexcept { return pieces_.size(); }

  // Examines piece `number`: once each. Throws IoError and ScanCancelled.
  void examine(std::size_t number, ScanProgress* progress);

  // After all pieces. Throws IoError, ScanCancelled, and Error if the file is
  // compressed.
  Findings finish(ScanProgress* progress);

 private:
  struct Checked {
    Frame frame;
    Fault fault;  // of the payload
  };
  struct Piece {
    std::uint64_t begin = 0, end = 0;  // bytes of the file
    std::uint64_t first = 0;           // where the chain through it begins
    std::uint64_t next = 0;            // where the chain stands
    bool is_broken = false;            // there
    std::uint64_t n_frames = 0;        // before the last one
    std::vector<std::pair<std::uint64_t, Checked>> damaged;  // of those, by number
    std::optional<Checked> last;

    void add(const Checked& checked);
  };
  class Reader;
  class Chain;

  void walk(Reader* reader, Piece* piece, ScanProgress* progress) const;

  FileView view_;
  std::vector<Piece> pieces_;
};

// The same of a compressed file, whose stream has recovery. It is not searched and not
// repaired: the rest of a content whose framing is broken is a gap.
Findings examine(FrameStream* stream, const std::string& name);

}  // namespace fastrec
