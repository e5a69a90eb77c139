// Reader: places -> the payloads there, verified.
//
// A payload is handed out from private memory, after both checksums were computed over
// that very copy: what another process does to the file meanwhile cannot reach it.
// Neighbouring frames are copied and verified together, in blocks that stay in the
// CPU's cache.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "file/file_view.h"
#include "record/catalog.h"

namespace fastrec {

class RecordReader {
 public:
  explicit RecordReader(std::shared_ptr<FileTable> files);

  // How much of a file is read at once where records are neighbours.
  static std::uint64_t block_bytes(const FileView& view) noexcept;

  // Begins to read `places`, which must stay alive until the last call of next(). Where
  // they are scattered over a disk, all of them are asked for at once.
  //
  // If the frames of all places were read before, `frames` is where the first one
  // begins; the others follow it, and there is slack on both sides.
  void start(std::span<const Place> places, const std::uint8_t* frames = nullptr);

  // The payload at the next place. `*payload` is valid until the following call, with
  // Buffer::kSlackBytes readable on both sides: the rest of its frame, which is proven
  // as well, and more. After a fault, the following call goes on to the place after it.
  //
  // Offsets of faults count from the beginning of the file. Throws IoError, and Error
  // where mapped bytes were lost.
  Fault next(Bytes* payload);

  // The frame at the next place, if it has at least `n_bytes_min` bytes and is mapped:
  // unverified, and open to changes. Otherwise nothing. Throws as next() does.
  Bytes next_mapped(std::size_t n_bytes_min);

  // Leaves the frame that next_mapped() returned, in place of next(). Throws Error
  // where mapped bytes were lost.
  void pass_mapped();

 private:
  // A file that this reader has open, without asking the table and its lock.
  struct OpenFile {
    std::size_t file = 0;
    std::shared_ptr<const FileView> view;
  };

  void start_block(const std::uint8_t* frames);
  Fault load_block();
  std::size_t gather(MutableBytes room);
  Fault check_place(const FileView& view, const Frame& frame) const;
  Fault check(const Place& place) const;
  const FileView* find(std::size_t file) const noexcept;
  const FileView* open(std::size_t file);
  void prefetch(std::size_t place) const noexcept;
  void announce();

  std::shared_ptr<FileTable> files_;
  std::vector<OpenFile> mapped_;  // each at its number modulo the size
  OpenFile read_;                 // by pread, only the last one: it has a descriptor
  std::span<const Place> places_;
  std::size_t next_ = 0;
  Buffer buffer_;
  const Crc32cKernel& kernel_ = crc32c_kernel();
  std::size_t block_end_place_ = 0;     // the first place that is not in the block
  std::vector<std::uint64_t> lengths_;  // of the payloads in the block, if it is whole
  std::size_t n_read_ = 0;              // frames of the block
  std::size_t n_intact_ = 0;            // of its first frames, so far: at least n_read_
  Bytes rest_;                          // of the block, from the next frame on
  bool is_remote_ = false;              // the file opened last
  // When places were started last: as long as this stays, nothing comes from a disk.
  std::optional<std::uint64_t> n_disk_reads_;
};

// The checksum of the payload at `place` as the file has it: not computed, not
// compared. Throws Error where the place is not in the file, and IoError.
std::uint32_t stored_payload_crc(const Place& place, FileTable* files);

// The Error for a fault in the record at `place`, noticed by next() or by whoever
// looked into the payload, in which case the caller has added where that begins.
Error record_error(const Fault& fault, std::string reason, const Place& place,
                   const FileTable& files);

}  // namespace fastrec
