// Stream: bytes in order -> frames, one after another.
//
// The bytes of a stream cannot be asked for by position, and nobody knows how many
// there are. So lengths are compared with the limits only, memory grows with the bytes
// that really come, and offsets count the bytes of the stream, which are those of the
// file as it was before it was compressed.
//
// A length is proven by its checksum when the frame is read. The payload is left to
// whoever decodes it (check_payload), on as many threads as there are.
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
  // Stream i is that of file `order[i]` of `files`, which gives the names. `on_wait`
  // is called several times a second while next() waits or reads on; what it throws
  // comes out of next(), and the stream is of no use afterwards.
  //
  // With any recovery but kNone, the rest of a stream that is damaged is left out:
  // nothing can be searched for that is not kept. It begins where it would begin in a
  // plain file (record/recovery.h): with a frame whose payload is damaged and whose end
  // nothing proves.
  FrameStream(std::shared_ptr<ByteStreams> streams, std::shared_ptr<FileTable> files,
              std::vector<std::size_t> order, std::function<void()> on_wait = {},
              Recovery recovery = Recovery::kNone);

  // Appends the next frame to `*frames`, which may come to hold `bytes_max` bytes.
  // False behind the last one. Throws Error, and what the producers failed with.
  bool next(std::size_t bytes_max, Place* place, std::vector<std::uint8_t>* frames);

  // What was left out so far, each of it once.
  bool has_gaps() const noexcept { return !gaps_.empty(); }
  std::vector<Gap> take_gaps() { return std::exchange(gaps_, {}); }

  // An Error about the stream at hand, or the last one; and one about a record.
  Error error(Errc code, std::string reason) const;
  Error error_in(const Place& place, const Fault& fault, std::string reason) const;

  void stop() { streams_->stop(); }
  int process_id() const noexcept { return streams_->process_id(); }

 private:
  bool next_frame(std::size_t bytes_max, Place* place,
                  std::vector<std::uint8_t>* frames);
  Fault check_unproven(Bytes frame);
  void leave(const Error& error, std::uint64_t end);
  void advance();
  void look_up();
  bool has_bytes();
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

// The frames of one stream, told of while its bytes pass by.
class FrameFeed {
 public:
  // The next bytes. Throws Error.
  void feed(Bytes bytes);
  // There are no more. Throws Error where they end inside a frame.
  void finish();

  // Called where the stream is damaged. Takes back the last frame if its payload is
  // damaged and nothing proves its end, and returns the Error of that payload.
  std::optional<Error> retract();

 protected:
  explicit FrameFeed(std::string name) : name_(std::move(name)) {}
  ~FrameFeed() = default;

  const std::string& name() const noexcept { return name_; }

 private:
  // A frame, the checksum that is stored with its payload, and what is wrong with it.
  virtual void on_frame(const Frame& frame, std::uint32_t stored,
                        const Fault& fault) = 0;
  // The last of them is taken back.
  virtual void on_retract(const Frame& frame) = 0;

  Error error_of(Fault fault) const;

  std::string name_;
  std::vector<std::uint8_t> partial_;  // of the header or the footer
  Frame frame_;                        // at hand, or where the next one begins
  std::uint64_t n_frames_ = 0;
  std::uint64_t n_to_skip_ = 0;  // of the payload
  std::uint32_t crc_ = 0;        // of the payload so far
  bool is_in_frame_ = false;
  Frame last_;        // the frame before
  Fault last_fault_;  // of its payload, until its end is proven
};

// Where each frame of one stream begins.
class StreamScan final : public FrameFeed {
 public:
  explicit StreamScan(std::string name) : FrameFeed(std::move(name)) {}

  // Where each frame begins, and at last where they end.
  const std::vector<std::uint64_t>& offsets() const noexcept { return offsets_; }
  // The checksum that is stored with each payload, also where the payload is damaged.
  const std::vector<std::uint32_t>& payload_crcs() const noexcept { return crcs_; }

 private:
  void on_frame(const Frame& frame, std::uint32_t stored, const Fault& fault) override;
  void on_retract(const Frame& frame) override;

  std::vector<std::uint64_t> offsets_{0};
  std::vector<std::uint32_t> crcs_;
};

}  // namespace fastrec
