// Index: the offsets of all records of one file, packed, in memory or in an index file.
//
// For n records, there are n + 1 offsets: the beginning of each frame, and the end of
// the last one. In a compressed file, they are offsets in its content, and the index
// also has the stored checksum of each payload.
//
// Invariants
//   * Frames are contiguous, except for the gaps that recovery leaves out of a damaged
//     file. An index with gaps is never saved.
//   * An entry is a claim: record/reader.h verifies the frame, and that it ends at the
//     next entry. If there is no such frame, is_stale() decides whether the index or the
//     file is wrong. A forged index can leave out records, or point to a frame inside a
//     payload.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "file/file.h"
#include "record/framing.h"
#include "record/packed_offsets.h"
#include "record/recovery.h"
#include "record/scan.h"

namespace fastrec {

class Index {
 public:
  // Scans the file. Throws Error if the framing is damaged and `recovery` is kNone,
  // IoError and ScanCancelled.
  static Index build(const FileView& view, unsigned n_threads, ScanProgress* progress,
                     Recovery recovery = Recovery::kNone);

  // `offsets` are those of a plain file. Throws Error if the first or last offset does
  // not match a file with `identity`.
  static Index from_offsets(std::span<const std::uint64_t> offsets,
                            FileIdentity identity, const std::string& path);

  // `offsets` are those of the content of a file that was read as a stream. There is
  // one checksum for each record.
  static Index of_stream(std::span<const std::uint64_t> offsets,
                         std::span<const std::uint32_t> payload_crcs,
                         std::vector<SkippedSpan> gaps, FileIdentity identity,
                         Content content);

  std::uint64_t size() const noexcept { return n_records_; }
  // The version of the file.
  const FileIdentity& identity() const noexcept { return identity_; }
  // The same index of another version of the file, in which only the time differs.
  Index with_mtime(std::int64_t mtime_ns) const;
  // kTfrecord for a plain file.
  Content content() const noexcept { return content_; }
  // The size of the file, or of its content.
  std::uint64_t n_bytes() const noexcept { return offset(n_records_); }
  // `i` is at most size().
  std::uint64_t offset(std::uint64_t i) const noexcept { return packed_offsets()[i]; }
  std::vector<std::uint64_t> offsets() const;

  bool has_payload_crcs() const noexcept { return has_payload_crcs_; }
  std::uint32_t payload_crc(std::uint64_t i) const noexcept;

  // The ranges that recovery skipped, in order; nearly always empty.
  std::span<const SkippedSpan> gaps() const noexcept {
    return gaps_ ? std::span<const SkippedSpan>(*gaps_)
                 : std::span<const SkippedSpan>();
  }

  // The unverified frame of record `i`. If the offsets are inconsistent, its length is
  // invalid, so that verification fails.
  Frame frame(std::uint64_t i) const noexcept;

  // Whether sampled frames are where the index says: a cheap check of an index of
  // unknown age. Streams cannot be sampled. Throws IoError.
  bool is_plausible(const FileView& view) const;

  // Whether the frames before and after entry `record` are in the file, so that the frame
  // between them is damaged if it is not. Throws IoError.
  bool surrounds(const FileView& view, std::uint64_t record) const;

  // Walks a plain file, and returns whether it has other frames than the index says.
  // Throws IoError, and what check_interrupt() throws.
  bool is_stale(const FileView& view) const;

  // Prefetches what frame() reads.
  void prefetch(std::uint64_t i) const noexcept { packed_offsets().prefetch(i); }

 private:
  friend class IndexFile;
  friend class IndexFileContent;

  Index(FileIdentity identity, Content content) noexcept
      : identity_(identity), content_(content) {}
  static Index packed(std::span<const std::uint64_t> offsets,
                      const std::span<const std::uint32_t>* payload_crcs,
                      std::vector<SkippedSpan> gaps, FileIdentity identity,
                      Content content);
  static std::uint64_t crc_bytes(std::uint64_t n_records) noexcept {
    return (n_records + 1) / 2 * 8;
  }
  PackedOffsets packed_offsets() const noexcept { return {bytes_, n_records_, width_}; }
  std::uint64_t end_before_gap(std::uint64_t i) const noexcept;
  bool has_frame(const FileView& view, std::uint64_t i) const;

  std::shared_ptr<const void> owner_;
  const std::uint8_t* bytes_ = nullptr;  // packed offsets, then any checksums
  std::uint64_t n_records_ = 0;
  FileIdentity identity_;
  std::uint8_t width_ = 0;
  Content content_;
  bool has_payload_crcs_ = false;
  std::shared_ptr<const std::vector<SkippedSpan>> gaps_;  // null if there are none
};

}  // namespace fastrec
