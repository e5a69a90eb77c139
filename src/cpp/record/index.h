// Index: the offsets of all records of one file, in memory or mapped from a cache file.
//
// For n records, the content of the cache file (file/cache_file.h) is n + 1 offsets,
// u64 le: the beginning of each frame, and the file size.
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
  // Scans the file. Throws Error if the framing is damaged and `recovery` is kNone,
  // IoError and ScanCancelled.
  static Index build(const FileView& view, unsigned n_threads, ScanProgress* progress,
                     Recovery recovery = Recovery::kNone);

  // `offsets` as in a cache file. Throws Error if the first or last offset does not
  // match a file with `identity`.
  static Index from_offsets(std::vector<std::uint64_t> offsets, FileIdentity identity,
                            const std::string& path);

  // Loads the index file `path`. Returns nothing if it is invalid or belongs to another
  // version of the file.
  static std::optional<Index> load(const std::string& path,
                                   const FileIdentity& identity);

  // Writes an index file. The index must have no gaps, and no process may read `path`
  // concurrently. Throws IoError.
  void save(const std::string& path) const;

  std::uint64_t size() const noexcept { return offsets_.size() - 1; }
  const FileIdentity& identity() const noexcept { return identity_; }
  std::span<const std::uint64_t> offsets() const noexcept { return offsets_; }

  // The ranges that recovery skipped, in order; nearly always empty.
  std::span<const SkippedSpan> gaps() const noexcept {
    return gaps_ ? std::span<const SkippedSpan>(*gaps_)
                 : std::span<const SkippedSpan>();
  }

  // The unverified frame of record `i`. If the offsets are inconsistent, its length is
  // invalid, so that verification fails.
  Frame frame(std::uint64_t i) const noexcept;

 private:
  Index(std::shared_ptr<const void> owner, std::span<const std::uint64_t> offsets,
        FileIdentity identity);
  static Index with_gaps(std::vector<std::uint64_t> offsets,
                         std::vector<SkippedSpan> gaps, FileIdentity identity);
  std::uint64_t end_before_gap(std::uint64_t i) const noexcept;

  std::shared_ptr<const void> owner_;
  std::span<const std::uint64_t> offsets_;
  FileIdentity identity_;
  std::shared_ptr<const std::vector<SkippedSpan>> gaps_;  // null if there are none
};

}  // namespace fastrec
