// WalkedClaims: the steps of an epoch in file order, without an index.
//
// Mapped files are scanned in windows (record/scan.h). The first window is small, so
// that the first batch is fast. Files that are read by pread, or with a recovery policy,
// are walked frame by frame, as far as the next claim needs. Frames before the first
// step are found and dropped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "loader/claims.h"
#include "loader/read_window.h"
#include "record/scan.h"

namespace fastrec {

// The sizes of scan windows; each is twice the previous one. No result depends on them.
struct ScanWindows {
  std::uint64_t first_bytes = std::uint64_t{256} << 10;
  std::uint64_t bytes_max = std::uint64_t{8} << 20;
};

class WalkedClaims final : public SearchedClaims {
 public:
  // There must be one rank. Only the batch size, drop_last and pad_last of the grid are
  // used.
  WalkedClaims(std::shared_ptr<FileTable> files, StepGrid grid,
               Recovery recovery = Recovery::kNone, std::uint64_t first_step = 0,
               ScanWindows windows = {});
  void locate(Claim* claim) const override;
  std::vector<FileOffsets> take_offsets() override;
  void stop() override;

 private:
  bool find() override;
  bool scan();
  bool walk();
  void add(std::span<const std::uint64_t> offsets);
  void add_to_file(std::span<const std::uint64_t> offsets);
  void end_file();

  const std::shared_ptr<FileTable> files_;
  const Recovery recovery_;
  const std::uint64_t bytes_max_;  // of a window
  mutable ReadWindow read_window_;
  ScanProgress progress_;  // cancelled by stop()
  const bool is_from_start_;

  // The state of the search.
  FrameWalk walk_;  // for views that cannot be scanned
  std::size_t file_ = 0;
  std::shared_ptr<const FileView> view_;  // of the file, once it is open
  std::uint64_t offset_ = 0;              // of the next frame
  std::uint64_t record_ = 0;              // its index in the file
  std::uint64_t window_bytes_;
  std::uint64_t frame_bytes_ = UINT64_MAX >> 16;  // mean size in the last window
  std::uint64_t n_before_;  // records still to drop before the first step
  // The offsets of all frames of a remote file; empty if it has a gap.
  std::vector<std::uint64_t> file_offsets_;

  std::vector<FileOffsets> offsets_;  // of whole files, not taken; guarded by mutex_
};

}  // namespace fastrec
