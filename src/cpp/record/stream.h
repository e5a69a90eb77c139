// Stream: the content of compressed files -> frames, in order.
//
// A stream is not seekable and has no known size. So lengths are compared only with the
// limits, memory grows with the bytes that arrive, and offsets count uncompressed
// bytes.
//
// The stream verifies the checksums of lengths. Decoders verify payloads
// (check_payload) on many threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "file/byte_streams.h"
#include "file/file_view.h"
#include "record/catalog.h"
#include "record/framing.h"
#include "record/recovery.h"

namespace fastrec {

// One record of a stream.
struct StreamRecord {
  Place place;
  Bytes frame;  // valid until the stream is read again
  Fault fault;  // of the payload

  Bytes payload() const noexcept {
    return frame.subspan(kHeaderBytes, place.frame.length);
  }
};

// The frames of several files, file by file.
class FrameStream {
 public:
  // Stream i is the content of file `order[i]` of `files`. While next() waits or reads,
  // it calls `on_wait` several times a second. An exception from `on_wait` stops the
  // streams.
  //
  // With any recovery except kNone, the rest of a damaged stream is skipped, because it
  // cannot be searched. The gap begins as in a plain file (record/recovery.h).
  FrameStream(std::shared_ptr<ByteStreams> streams, std::shared_ptr<FileTable> files,
              std::vector<std::size_t> order, std::function<void()> on_wait = {},
              Recovery recovery = Recovery::kNone);

  // Appends the next frame to `*frames`, which may grow to `bytes_max` bytes. Returns
  // false after the last frame. Throws Error, the exceptions of the producers, and
  // ScanCancelled if the streams are stopped.
  bool next(std::size_t bytes_max, Place* place, std::vector<std::uint8_t>* frames);

  // Reads and verifies the next record. Its frame is in the memory of this.
  bool next(StreamRecord* record);

  // Verifies the next frame without storing its payload, in constant memory.
  struct Verified {
    Place place;
    std::uint32_t stored_crc = 0;
    Fault fault;  // of the payload
  };
  bool verify(Verified* verified);

  // The number of bytes read so far, from all streams.
  std::uint64_t n_bytes() const noexcept { return n_bytes_; }

  // The gaps found since the last call.
  bool has_gaps() const noexcept { return !gaps_.empty(); }
  std::vector<SkippedSpan> take_gaps() { return std::exchange(gaps_, {}); }

  // An Error about the current stream or the last one, and an Error about a record.
  Error error(Errc code, std::string reason) const;
  Error error_in(const Place& place, const Fault& fault) const;

  void stop() { streams_->stop(); }
  int process_id() const noexcept { return streams_->process_id(); }

 private:
  template <typename ReadFrame, typename CheckPayload>
  bool next_verified(Place* place, const ReadFrame& read_frame,
                     const CheckPayload& check);
  bool next_header(Place* place);
  void end_frame(std::uint64_t n_read, const Place& place);
  bool is_end_verified();
  void skip_rest(const Error& error, bool is_at_end);
  void advance();
  void poll();
  Bytes unread() const noexcept { return Bytes(chunk_).subspan(n_consumed_); }
  Bytes peek(std::size_t n);
  template <typename OnBytes>
  std::uint64_t consume(std::uint64_t n, const OnBytes& on_bytes);
  std::uint64_t read(std::uint64_t n, std::vector<std::uint8_t>* into);
  Error error_at(Fault fault);

  std::shared_ptr<ByteStreams> streams_;
  std::shared_ptr<FileTable> files_;
  std::vector<std::size_t> order_;
  std::function<void()> on_wait_;
  Recovery recovery_;
  std::vector<SkippedSpan> gaps_;
  std::chrono::steady_clock::time_point next_poll_;  // when to call on_wait_ next
  std::size_t stream_ = 0;                           // the current stream
  std::uint64_t offset_ = 0;                         // in the current stream
  std::uint64_t record_ = 0;                         // in the current stream
  std::uint64_t n_bytes_ = 0;                        // read from all streams
  std::uint64_t n_bytes_before_ = 0;                 // read from earlier streams
  std::vector<std::uint8_t> chunk_;
  std::size_t n_consumed_ = 0;       // bytes of the chunk
  std::vector<std::uint8_t> frame_;  // of a StreamRecord that is in several chunks
};

// The frames of one stream.
struct StreamIndex {
  std::vector<std::uint64_t> offsets{0};    // the begin of each frame, and the last end
  std::vector<std::uint32_t> payload_crcs;  // stored, even if the payload is damaged
};

// Reads a stream to its end. Throws like FrameStream.
StreamIndex index_of(FrameStream* stream);

}  // namespace fastrec
