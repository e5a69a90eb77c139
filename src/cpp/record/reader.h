// Reader: places -> the payloads there, verified.
//
// A payload is handed out from private memory, after both checksums were computed over
// that very copy: what another process does to the file meanwhile cannot reach it.
// Neighbouring frames are read together, in blocks that stay in the CPU's cache.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "file/file_view.h"
#include "record/catalog.h"

namespace fastrec {

class RecordReader {
 public:
  explicit RecordReader(std::shared_ptr<FileTable> files);

  // Begins to read `places`, which must stay alive until the last call of next().
  void start(std::span<const Place> places);

  // The payload at the next place. `*payload` is valid until the following call, with
  // Buffer::kSlackBytes readable on both sides.
  //
  // Offsets of faults count from the beginning of the file. Throws IoError.
  Fault next(Bytes* payload);

 private:
  Fault load_block();

  std::shared_ptr<FileTable> files_;
  std::shared_ptr<const FileView> view_;
  std::size_t view_file_ = 0;  // index of the file that view_ is of
  std::span<const Place> places_;
  std::size_t next_ = 0;
  Buffer buffer_;
  Bytes block_;  // private copy of file bytes from block_begin_ on
  std::uint64_t block_begin_ = 0;
  std::size_t block_end_place_ = 0;  // the first place that is not in the block
};

// The checksum of the payload at `place` as the file has it: not computed, not
// compared. Throws Error where the place is not in the file, and IoError.
std::uint32_t stored_payload_crc(const Place& place, FileTable* files);

// The Error for a fault in the record at `place`, noticed by next() or by whoever
// looked into the payload, in which case the caller has added where that begins.
Error record_error(const Fault& fault, std::string reason, const Place& place,
                   const FileTable& files);

}  // namespace fastrec
