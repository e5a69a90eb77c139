#include "record/stream.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "crc32c/crc32c.h"
#include "record/reader.h"

namespace fastrec {
namespace {

constexpr std::chrono::milliseconds kPollInterval(50);
constexpr std::uint64_t kUnknownSize = std::numeric_limits<std::uint64_t>::max();

// Verifies a complete header. The number of bytes after it is unknown.
Fault stream_header(const std::uint8_t* header, std::uint64_t* length,
                    std::uint64_t length_max) {
  Fault fault = check_header(header, kUnknownSize, length);
  // The length is valid, but larger than any stream.
  if (fault.code == Errc::kTruncatedPayload) *length = kUnknownSize;
  if (fault && fault.code != Errc::kTruncatedPayload) return fault;
  if (*length <= length_max) return {};
  return {.code = Errc::kRecordTooLarge, .found = *length, .expected = length_max};
}

// If the fault is at offset 0, `beginning` has the first bytes of the content.
Error stream_error(Fault fault, Bytes beginning, const std::string& name,
                   std::uint64_t record) {
  std::string reason = describe(fault);
  if (fault.offset == 0 &&
      (fault.code == Errc::kLengthCrc || fault.code == Errc::kTruncatedHeader)) {
    const Content content = recognize(beginning);
    if (content == Content::kGzip || content == Content::kZlib) {
      // The content was already decompressed once; readers do not do it twice.
      reason += content == Content::kGzip ? "; the content looks like a GZIP file"
                                          : "; the content looks like a ZLIB file";
    } else {
      reason = describe_foreign(content, &fault);
    }
  }
  Error error(fault.code, std::move(reason), name);
  error.record = record;
  error.offset = fault.offset;
  return error;
}

// Whether only this stream is damaged, so that the next one may be read.
bool is_damage(Errc code) {
  return code == Errc::kTruncatedHeader || code == Errc::kTruncatedPayload ||
         code == Errc::kLengthCrc || code == Errc::kNotTfrecord ||
         code == Errc::kStream;
}

}  // namespace

FrameStream::FrameStream(std::shared_ptr<ByteStreams> streams,
                         std::shared_ptr<FileTable> files,
                         std::vector<std::size_t> order, std::function<void()> on_wait,
                         Recovery recovery)
    : streams_(std::move(streams)),
      files_(std::move(files)),
      order_(std::move(order)),
      on_wait_(std::move(on_wait)),
      recovery_(recovery),
      next_poll_(std::chrono::steady_clock::now() + kPollInterval) {}

void FrameStream::poll() {
  if (!on_wait_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_poll_) return;
  next_poll_ = now + kPollInterval;
  on_wait_();
}

// Waits for bytes. Returns false at the end of the current stream.
bool FrameStream::has_bytes() {
  if (!ahead_.empty()) return true;
  while (n_consumed_ == chunk_.size()) {
    n_consumed_ = 0;
    chunk_.clear();
    const ByteStreams::PopResult result = streams_->pop(kPollInterval, &chunk_);
    if (result == ByteStreams::PopResult::kEnd) return false;
    poll();
  }
  return true;
}

// Calls `on_bytes` for the next `n` bytes, or fewer at the end. Returns their number.
template <typename OnBytes>
std::uint64_t FrameStream::consume(std::uint64_t n, const OnBytes& on_bytes) {
  const auto n_ahead =
      static_cast<std::size_t>(std::min<std::uint64_t>(n, ahead_.size()));
  on_bytes(Bytes(ahead_).first(n_ahead));
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(n_ahead));
  std::uint64_t n_done = n_ahead;
  while (n_done < n && has_bytes()) {
    const auto n_here = static_cast<std::size_t>(
        std::min<std::uint64_t>(n - n_done, chunk_.size() - n_consumed_));
    on_bytes(Bytes(chunk_).subspan(n_consumed_, n_here));
    n_consumed_ += n_here;
    n_bytes_ += n_here;
    n_done += n_here;
  }
  return n_done;
}

// Appends the next `n` bytes, or fewer at the end. Returns their number.
std::uint64_t FrameStream::read(std::uint64_t n, std::vector<std::uint8_t>* into) {
  return consume(n, [into](Bytes bytes) {
    into->insert(into->end(), bytes.begin(), bytes.end());
  });
}

Error FrameStream::error_at(Fault fault, std::vector<std::uint8_t>* frame,
                            std::size_t begin) {
  fault.offset += offset_;
  const auto located = [&] {
    return stream_error(fault, Bytes(*frame).subspan(begin),
                        files_->name(order_[stream_]), record_);
  };
  const std::size_t n_known = frame->size() - begin;
  if (offset_ == 0 && n_known < kRecognizeBytes) {
    try {
      read(kRecognizeBytes - n_known, frame);
    } catch (const Error&) {
      // The stream has more damage after this fault, which later reads report.
      return located();
    }
  }
  return located();
}

Error FrameStream::error(Errc code, std::string reason) const {
  if (order_.empty()) return {code, std::move(reason), {}};
  const std::size_t at = std::min(stream_, order_.size() - 1);
  return {code, std::move(reason), files_->name(order_[at])};
}

// Reads frames until one is verified; without recovery, reads one frame. `check`
// verifies the payload of the last frame.
template <typename ReadFrame, typename CheckPayload>
bool FrameStream::next_verified(Place* place, const ReadFrame& read_frame,
                                const CheckPayload& check) {
  while (true) {
    try {
      if (!read_frame()) return false;
      if (recovery_ == Recovery::kNone || is_end_verified()) return true;
      Fault fault = check();
      if (!fault) return true;
      const bool is_at_end = ahead_.size() < kHeaderBytes;
      record_ = place->record;
      offset_ = place->frame.offset;
      fault.offset += offset_;
      skip_rest(error_in(*place, fault, describe(fault)), is_at_end);
    } catch (const Error& error) {
      if (recovery_ == Recovery::kNone || !is_damage(error.code)) throw;
      // After an invalid header, the content may continue.
      skip_rest(error,
                error.code != Errc::kLengthCrc && error.code != Errc::kNotTfrecord);
    }
  }
}

bool FrameStream::next(std::size_t bytes_max, Place* place,
                       std::vector<std::uint8_t>* frames) {
  const std::size_t begin = frames->size();
  const auto read_frame = [&] {
    frames->resize(begin);
    if (!next_header(place, frames)) return false;
    const std::uint64_t n_rest = place->frame.length + kFooterBytes;
    if (frames->size() > bytes_max || n_rest > bytes_max - frames->size()) {
      Error too_large =
          error(Errc::kRecordTooLarge,
                "compressed records in memory exceed the larger of memory_limit and "
                "1 GiB: reduce batch_size or window, or pass cache_dir=");
      too_large.record = record_;
      too_large.offset = offset_;
      throw too_large;
    }
    end_frame(read(n_rest, frames), place, frames, begin);
    return true;
  };
  return next_verified(place, read_frame,
                       [&] { return check_payload(Bytes(*frames).subspan(begin)); });
}

bool FrameStream::verify(Verified* verified) {
  std::vector<std::uint8_t> frame;  // only header and footer
  const auto read_frame = [&] {
    frame.clear();
    if (!next_header(&verified->place, &frame)) return false;
    std::uint32_t crc = 0;
    std::uint64_t n_read = consume(verified->place.frame.length, [&crc](Bytes bytes) {
      crc = crc32c_kernel().extend(crc, bytes);
    });
    if (n_read == verified->place.frame.length) n_read += read(kFooterBytes, &frame);
    end_frame(n_read, &verified->place, &frame, 0);
    verified->stored_crc = load_le<std::uint32_t>(frame.data() + kHeaderBytes);
    verified->fault = {};
    if (verified->stored_crc != crc32c_mask(crc)) {
      verified->fault = {.code = Errc::kPayloadCrc,
                         .offset = kHeaderBytes,
                         .found = verified->stored_crc,
                         .expected = crc32c_mask(crc)};
    }
    return true;
  };
  if (!next_verified(&verified->place, read_frame, [&] { return verified->fault; })) {
    return false;
  }
  verified->fault.offset += verified->place.frame.offset;
  return true;
}

// Whether the next header, or the end of the stream, verifies the end of the last
// frame.
bool FrameStream::is_end_verified() {
  std::vector<std::uint8_t> header;
  bool is_damaged = false;
  try {
    read(kHeaderBytes, &header);
  } catch (const Error& error) {
    is_damaged = is_damage(error.code);  // the next read throws it again
  } catch (const IoError&) {
    is_damaged = false;
  }
  ahead_ = std::move(header);
  if (ahead_.size() < kHeaderBytes) return ahead_.empty() && !is_damaged;
  std::uint64_t length = 0;
  const Fault fault = check_header(ahead_.data(), kUnknownSize, &length);
  // A valid length also verifies the end of the frame before.
  return !fault || fault.code == Errc::kTruncatedPayload;
}

// Skips the rest of the current stream.
void FrameStream::skip_rest(const Error& error, bool is_at_end) {
  gaps_.push_back({record_, offset_,
                   is_at_end ? n_bytes_ - n_bytes_before_ : SkippedSpan::kUnknownEnd,
                   error});
  advance();
}

void FrameStream::advance() {
  streams_->advance();
  ++stream_;
  offset_ = record_ = 0;
  n_bytes_before_ = n_bytes_;
  ahead_.clear();
  chunk_.clear();
  n_consumed_ = 0;
}

// Appends the header of the next frame.
bool FrameStream::next_header(Place* place, std::vector<std::uint8_t>* frames) {
  while (stream_ < order_.size() && !has_bytes()) advance();
  if (stream_ == order_.size()) return false;
  const std::size_t begin = frames->size();
  const std::uint64_t n_header = read(kHeaderBytes, frames);
  std::uint64_t length = 0;
  Fault fault{
      .code = Errc::kTruncatedHeader, .found = n_header, .expected = kHeaderBytes};
  if (n_header == kHeaderBytes) {
    fault = stream_header(frames->data() + begin, &length,
                          std::min(kMaxPayloadBytes, files_->record_bytes_max()));
  }
  if (fault) throw error_at(fault, frames, begin);
  *place = {order_[stream_], record_, {offset_, length}};
  return true;
}

// Completes a frame of which `n_read` bytes follow the header at `begin`.
void FrameStream::end_frame(std::uint64_t n_read, Place* place,
                            std::vector<std::uint8_t>* frames, std::size_t begin) {
  const std::uint64_t n_rest = place->frame.length + kFooterBytes;
  if (n_read < n_rest) {
    throw error_at(
        {.code = Errc::kTruncatedPayload, .found = n_read, .expected = n_rest}, frames,
        begin);
  }
  ++record_;
  offset_ = place->frame.end();
}

Error FrameStream::error_in(const Place& place, const Fault& fault,
                            std::string reason) const {
  return record_error(fault, std::move(reason), place, *files_);
}

bool StreamRecord::read_from(FrameStream* stream, Fault* fault) {
  frame_.assign(Buffer::kSlackBytes, 0);
  if (!stream->next(kUnknownSize, &place_, &frame_)) return false;
  *fault = check_payload(Bytes(frame_).subspan(Buffer::kSlackBytes));
  fault->offset += place_.frame.offset;
  frame_.insert(frame_.end(), Buffer::kSlackBytes, 0);
  return true;
}

Bytes StreamRecord::payload() const noexcept {
  return Bytes(frame_).subspan(Buffer::kSlackBytes + kHeaderBytes,
                               static_cast<std::size_t>(place_.frame.length));
}

Bytes StreamRecord::frame() const noexcept {
  return Bytes(frame_).subspan(Buffer::kSlackBytes,
                               static_cast<std::size_t>(place_.frame.size()));
}

StreamIndex index_of(FrameStream* stream) {
  StreamIndex index;
  for (FrameStream::Verified frame; stream->verify(&frame);) {
    index.offsets.push_back(frame.place.frame.end());
    index.payload_crcs.push_back(frame.stored_crc);
  }
  return index;
}

}  // namespace fastrec
