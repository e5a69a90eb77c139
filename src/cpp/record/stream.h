// Stream: bytes in order -> frames, one after another.
//
// A stream has no positions and no known size. So lengths are compared only with the
// limits, memory grows with the bytes that arrive, and offsets count the bytes of the
// stream, which are those of the uncompressed file.
//
// The checksum of a length is proven when the frame is read. Decoders check the payload
// (check_payload), on many threads.
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

// Frames of several files, one file after another.
class FrameStream {
 public:
  // Stream i is that of file `order[i]` of `files`, which has the names. While next()
  // waits or reads, it calls `on_wait` several times a second. An exception of
  // `on_wait` ends the stream.
  //
  // With any recovery but kNone, the rest of a damaged stream is left out, because it
  // cannot be searched. It begins where the gap in a plain file would
  // (record/recovery.h).
  FrameStream(std::shared_ptr<ByteStreams> streams, std::shared_ptr<FileTable> files,
              std::vector<std::size_t> order, std::function<void()> on_wait = {},
              Recovery recovery = Recovery::kNone);

  // Appends the next frame to `*frames`, which may grow to `bytes_max` bytes. Returns
  // false after the last one. Throws Error, and the failures of the producers.
  bool next(std::size_t bytes_max, Place* place, std::vector<std::uint8_t>* frames);

  // The same without the payload, whose checksum is computed while its bytes pass: any
  // record takes no memory.
  struct Passed {
    Place place;
    std::uint32_t stored_crc = 0;
    Fault fault;  // of the payload
  };
  bool pass(Passed* passed);

  // Bytes that were taken of all streams.
  std::uint64_t n_bytes() const noexcept { return n_bytes_; }

  // What was left out so far, each of it once.
  bool has_gaps() const noexcept { return !gaps_.empty(); }
  std::vector<Gap> take_gaps() { return std::exchange(gaps_, {}); }

  // An Error about the stream at hand, or the last one; and one about a record.
  Error error(Errc code, std::string reason) const;
  Error error_in(const Place& place, const Fault& fault, std::string reason) const;

  void stop() { streams_->stop(); }
  int process_id() const noexcept { return streams_->process_id(); }

 private:
  template <typename ReadFrame, typename CheckPayload>
  bool next_proven(Place* place, const ReadFrame& read_frame,
                   const CheckPayload& check);
  bool next_header(Place* place, std::vector<std::uint8_t>* frames);
  void end_frame(std::uint64_t n_read, Place* place, std::vector<std::uint8_t>* frames,
                 std::size_t begin);
  bool is_end_proven();
  void leave(const Error& error, bool is_at_end);
  void advance();
  void look_up();
  bool has_bytes();
  template <typename OnBytes>
  std::uint64_t take(std::uint64_t n, const OnBytes& on_bytes);
  std::uint64_t read(std::uint64_t n, std::vector<std::uint8_t>* into);
  Error error_at(Fault fault, std::vector<std::uint8_t>* frame, std::size_t begin);

  std::shared_ptr<ByteStreams> streams_;
  std::shared_ptr<FileTable> files_;
  std::vector<std::size_t> order_;
  std::function<void()> on_wait_;
  Recovery recovery_;
  std::vector<Gap> gaps_;
  std::chrono::steady_clock::time_point next_look_;  // when on_wait_ is called next
  std::size_t stream_ = 0;                           // the one at hand
  std::uint64_t offset_ = 0;                         // in it
  std::uint64_t record_ = 0;                         // in it
  std::uint64_t n_bytes_ = 0;                        // taken, of all streams
  std::uint64_t n_bytes_before_ = 0;                 // of those before this one
  std::vector<std::uint8_t> chunk_;
  std::size_t taken_ = 0;            // of the chunk
  std::vector<std::uint8_t> ahead_;  // of the next header, before the chunk
};

// One record of a stream at a time.
class StreamRecord {
 public:
  // Goes on to the next record; false behind the last one. `*fault` says whether its
  // payload is damaged. Throws as FrameStream does.
  bool read_from(FrameStream* stream, Fault* fault);

  const Place& place() const noexcept { return place_; }
  // Valid until the next call, with slack on both sides.
  Bytes payload() const noexcept;
  // The whole frame that it is in.
  Bytes frame() const noexcept;

 private:
  Place place_;
  std::vector<std::uint8_t> frame_;
};

// Where the frames of one stream begin, and at last where they end; and the checksum
// that is stored with each payload, also where the payload is damaged.
struct StreamIndex {
  std::vector<std::uint64_t> offsets{0};
  std::vector<std::uint32_t> payload_crcs;
};

// Reads a stream to its end. Throws as FrameStream does.
StreamIndex index_of(FrameStream* stream);

}  // namespace fastrec
