// Index: where every record of one file is, in memory or mapped from a cache file.
//
// The content of a cache file (file/cache_file.h) of n records is n + 1 offsets, u64
// le: where each frame begins, and the file size.
//
// Invariants
//   * A truncated or altered index file, or one of another version of the file, is not
//     loaded.
//   * Frames are contiguous, except for the gaps that recovery leaves out of a damaged
//     file. An index with gaps is never saved.
//   * An entry is a claim: record/reader.h verifies the frame, and that it ends at the
//     next entry. So a wrong index causes errors. A forged one can leave out records,
//     or point to a frame inside a payload.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "file/file.h"
#include "record/framing.h"
#include "record/recovery.h"
#include "record/scan.h"

namespace fastrec {

class Index {
 public:
  // Scans the file. Throws Error if the framing is damaged and not recovered, IoError
  // and ScanCancelled.
  static Index build(const FileView& view, unsigned n_threads, ScanProgress* progress,
                     Recovery recovery = Recovery::kNone);

  // `offsets` as in a cache file: one more than there are records. Throws Error if they
  // cannot be those of a file of `identity`.
  static Index from_offsets(std::vector<std::uint64_t> offsets, FileIdentity identity,
                            const std::string& path);

  // The index in file `path`, if it is whole and belongs to `identity`; otherwise
  // nothing, for whatever reason.
  static std::optional<Index> load(const std::string& path,
                                   const FileIdentity& identity);

  // Writes a file that load() reads. The index must have no gaps, and no process may
  // read `path` meanwhile. Throws IoError.
  void save(const std::string& path) const;

  std::uint64_t size() const noexcept { return offsets_.size() - 1; }
  const FileIdentity& identity() const noexcept { return identity_; }
  std::span<const std::uint64_t> offsets() const noexcept { return offsets_; }

  // What is left out of the file, in order: nothing, nearly always.
  std::span<const Gap> gaps() const noexcept {
    return gaps_ ? std::span<const Gap>(*gaps_) : std::span<const Gap>();
  }

  // Where record `i` claims to be. A length that the offsets cannot mean becomes one
  // that no frame has, so that the proof fails.
  Frame frame(std::uint64_t i) const noexcept;

 private:
  Index(std::shared_ptr<const void> owner, std::span<const std::uint64_t> offsets,
        FileIdentity identity);
  static Index with_gaps(std::vector<std::uint64_t> offsets, std::vector<Gap> gaps,
                         FileIdentity identity);
  std::uint64_t end_before_gap(std::uint64_t i) const noexcept;

  std::shared_ptr<const void> owner_;
  std::span<const std::uint64_t> offsets_;
  FileIdentity identity_;
  std::shared_ptr<const std::vector<Gap>> gaps_;  // null: there are none
};

}  // namespace fastrec
