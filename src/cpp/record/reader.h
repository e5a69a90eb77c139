// Reader: places -> verified payloads.
//
// The reader copies frames to private memory and verifies the copy, so that concurrent
// changes to the file cannot affect a returned payload. It copies and verifies adjacent
// frames together, in blocks that stay in the CPU's cache.
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

  // The block size for adjacent records.
  static std::uint64_t block_bytes(const FileView& view) noexcept;

  // Starts to read `places`, which must stay alive until the last call of next(). If
  // they are scattered over a disk, or in a remote store, requests all of them at once.
  //
  // If the caller has already read the frames, it passes them as `frames`: contiguous,
  // in the order of the places, with slack on both sides.
  void start(std::span<const Place> places, const std::uint8_t* frames = nullptr);

  // Reads the payload at the next place. `*payload` has Buffer::kSlackBytes of readable
  // slack on both sides, including the rest of its verified frame, and is valid until
  // the next call. After a fault, the next call reads the next place.
  //
  // If there is no frame at a place of an index, the file is walked: the fault is
  // kIndexMismatch if the index is stale. Offsets of faults count from the beginning of
  // the file. Throws IoError, Error if mapped pages were lost, and what
  // check_interrupt() throws.
  Fault next(Bytes* payload);

  // Returns the mapped frame at the next place, unverified and subject to concurrent
  // changes; empty if it is not mapped or has less than `n_bytes_min` bytes. Throws
  // like next().
  Bytes next_mapped(std::size_t n_bytes_min);

  // Moves past the frame that next_mapped() returned. Throws Error if mapped pages were
  // lost.
  void skip_mapped();

  // Frees the memory of a large record. Payloads from next() are no longer valid.
  void trim() { buffer_.trim(FileView::kReleasedBytes); }

 private:
  // A cached file, to avoid the lock of the table.
  struct OpenFile {
    std::size_t file = 0;
    std::shared_ptr<const FileView> view;
  };

  void start_block(const std::uint8_t* frames);
  Fault load_block();
  std::size_t gather(MutableBytes room);
  Fault check_place(const FileView& view, const Frame& frame) const;
  Fault check(const Place& place) const;
  Fault judged(const Fault& fault, const Place& place);
  const FileView* find(std::size_t file) const noexcept;
  const FileView* open(std::size_t file);
  void prefetch(std::size_t place) const noexcept;
  void request_scattered();

  std::shared_ptr<FileTable> files_;
  // The slot of a file is its number modulo the size, a power of two.
  std::vector<OpenFile> mapped_;
  OpenFile read_;  // the last file read by pread; it holds a descriptor
  std::span<const Place> places_;
  std::size_t next_ = 0;
  Buffer buffer_;
  const Crc32cKernel& kernel_ = crc32c_kernel();
  std::size_t block_end_place_ = 0;     // the first place after the block
  std::vector<std::uint64_t> lengths_;  // of the payloads; empty if the block is short
  std::size_t n_read_ = 0;              // frames of the block returned so far
  std::size_t n_intact_ = 0;            // frames verified so far, at least n_read_
  Bytes rest_;                          // the block from the next frame on
  bool is_remote_ = false;              // of any opened file
  // The counter at the last start(). While it does not change, files are in memory.
  std::optional<std::uint64_t> n_disk_reads_;
};

// The stored checksum of the payload at `place`, unverified. Throws IoError, and Error
// if the place is outside of the file.
std::uint32_t stored_payload_crc(const Place& place, FileTable* files);

// The Error for a fault in the record at `place`. The offset of the fault must count
// from the beginning of the file.
Error record_error(const Fault& fault, std::string reason, const Place& place,
                   const FileTable& files);

}  // namespace fastrec
