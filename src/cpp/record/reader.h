// Reader: runs of frames -> verified payloads.
//
// The reader copies frames to private memory and verifies the copy, so that concurrent
// changes to the file cannot affect a returned payload. It copies and verifies frames
// in blocks that stay in the CPU's cache.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "file/file_view.h"
#include "record/catalog.h"

namespace fastrec {

// Contiguous verified frames in private memory, with Buffer::kSlackBytes of readable
// slack on both sides.
struct VerifiedBlock {
  const std::uint8_t* frame = nullptr;     // the first one
  std::span<const std::uint64_t> lengths;  // of the payloads

  bool empty() const noexcept { return lengths.empty(); }

  // Removes the first frame and returns its payload.
  Bytes pop() noexcept {
    const Bytes payload(frame + kHeaderBytes, lengths.front());
    frame = payload.data() + payload.size() + kFooterBytes;
    lengths = lengths.subspan(1);
    return payload;
  }
};

class RecordReader {
 public:
  explicit RecordReader(std::shared_ptr<FileTable> files);

  // The block size for contiguous frames.
  static std::uint64_t block_bytes(const FileView& view) noexcept;

  // Starts to read `frames`, which must stay alive while their blocks are used. If
  // they are scattered over a disk, or in a remote store, requests all of them at once.
  //
  // If the caller has already read them, it passes their `bytes`: contiguous, with slack
  // on both sides.
  void start(const FrameRuns& frames, const std::uint8_t* bytes = nullptr);

  // Reads the next records, at least one. `*block` is valid until the next call. A fault
  // is that of the next record; the next call reads the one after it.
  //
  // If there is no frame at a place of an index, the file is walked: the fault is
  // kIndexMismatch if the index is stale. Offsets of faults count from the beginning of
  // the file. Throws IoError, Error if mapped pages were lost, and what
  // check_interrupt() throws.
  Fault next_block(VerifiedBlock* block);

  // The same, one record at a time.
  Fault next(Bytes* payload) {
    if (block_.empty()) {
      if (Fault fault = next_block(&block_)) return fault;
    }
    *payload = block_.pop();
    return {};
  }

  // Returns the payload of the next record, or throws its Error.
  Bytes next();

  // Returns the next frame in the mapping, unverified and subject to concurrent changes;
  // empty if it is not mapped, was copied already, is small and scattered, or has a
  // payload of less than `n_bytes_min` bytes. Throws like next_block().
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

  Fault load_block();
  std::size_t gather(MutableBytes room);
  bool gather_ranges(RangeRequests* requests);
  void move(std::size_t n_frames, std::uint64_t n_bytes);
  Frame next_frame() const { return {next_offset_, frames_->lengths[n_loaded_]}; }
  Fault check_place(const FileView& view, const Frame& frame) const;
  Fault check(const Place& place) const;
  Fault judged(const Fault& fault, const Place& place);
  const FileView* find(std::size_t file) const noexcept;
  const FileView* open(std::size_t file);
  void prefetch(std::size_t run) const noexcept;
  void request_scattered();

  std::shared_ptr<FileTable> files_;
  // The slot of a file is its number modulo the size, a power of two.
  std::vector<OpenFile> mapped_;
  OpenFile read_;  // the last file read by pread; it holds a descriptor
  const std::uint64_t payload_bytes_max_;
  const FrameRuns* frames_ = nullptr;
  PlaceCursor places_;  // of faults
  std::size_t n_returned_ = 0;
  // Frames that were copied to memory. The next one is in run run_, at next_offset_.
  std::size_t n_loaded_ = 0;
  std::size_t run_ = 0;
  std::size_t n_in_run_ = 0;  // loaded
  std::uint64_t next_offset_ = 0;
  Buffer buffer_;
  const Crc32cKernel& kernel_ = crc32c_kernel();
  Bytes rest_;              // loaded and not returned
  bool is_short_ = false;   // `rest_` ends before the last frame
  VerifiedBlock block_;     // of next()
  bool is_remote_ = false;  // of any opened file
  // The counter at the last start(). While it does not change, files are in memory.
  std::optional<std::uint64_t> n_disk_reads_;
};

// Calls `on_payload(Bytes)` for the verified record of each of `frames`. Throws like
// RecordReader.
template <typename OnPayload>
void read_each(std::shared_ptr<FileTable> files, const FrameRuns& frames,
               const OnPayload& on_payload) {
  RecordReader reader(std::move(files));
  reader.start(frames);
  for (std::size_t i = 0; i < frames.size(); ++i) on_payload(reader.next());
}

// Verifies `frames` and copies frame i to into[begins[i]]. Throws like RecordReader,
// std::invalid_argument and std::out_of_range.
void copy_frames(std::shared_ptr<FileTable> files, const FrameRuns& frames,
                 std::span<const std::int64_t> begins, MutableBytes into);

// The stored checksums of the payloads of `frames` of a catalog, unverified: in its
// indexes, or in the files. Throws IoError, and Error if a frame is outside of its file.
std::vector<std::uint32_t> stored_payload_crcs(const FrameRuns& frames,
                                               FileTable* files);

// The Error for a fault in the record at `place`. The offset of the fault must count
// from the beginning of the file.
Error record_error(const Fault& fault, std::string reason, const Place& place,
                   const FileTable& files);

}  // namespace fastrec
