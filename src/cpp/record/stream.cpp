#include "record/stream.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "crc32c/crc32c.h"
#include "record/reader.h"
#include "record/scan.h"

namespace fastrec {
namespace {

constexpr std::chrono::milliseconds kPollInterval(50);
constexpr std::uint64_t kUnknownSize = std::numeric_limits<std::uint64_t>::max();

// Verifies a complete header. The number of bytes after it is unknown.
Fault stream_header(const std::uint8_t* header, std::uint64_t* length,
                    std::uint64_t length_max) {
  const Fault fault = check_header(header, kUnknownSize, length);
  // The length is valid, but larger than any stream.
  if (fault.code == Errc::kTruncatedPayload) *length = load_le<std::uint64_t>(header);
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
  try {
    on_wait_();
  } catch (...) {
    stop();  // a part of a frame may be consumed
    throw;
  }
}

// Waits for the next bytes, without consuming them: at least `n`, or fewer at the end of
// the current stream.
Bytes FrameStream::peek(std::size_t n) {
  while (unread().size() < n) {
    poll();
    const std::vector<std::uint8_t> rest(unread().begin(), unread().end());
    const ByteStreams::PopResult result = streams_->pop(kPollInterval, &chunk_);
    if (streams_->is_stopped()) throw ScanCancelled();
    if (result == ByteStreams::PopResult::kEnd) break;
    if (result == ByteStreams::PopResult::kBytes) {
      n_bytes_ += chunk_.size();
      chunk_.insert(chunk_.begin(), rest.begin(), rest.end());
      n_consumed_ = 0;
    }
  }
  return unread();
}

// Calls `on_bytes` for the next `n` bytes, or fewer at the end. Returns their number.
template <typename OnBytes>
std::uint64_t FrameStream::consume(std::uint64_t n, const OnBytes& on_bytes) {
  std::uint64_t n_done = 0;
  while (n_done < n && !peek(1).empty()) {
    const auto n_here =
        static_cast<std::size_t>(std::min<std::uint64_t>(n - n_done, unread().size()));
    on_bytes(unread().first(n_here));
    n_consumed_ += n_here;
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

// The Error for a fault in the frame at offset_. If the fault is in its header, the
// unread bytes begin with it.
Error FrameStream::error_at(Fault fault) {
  fault.offset += offset_;
  const auto located = [&] {
    const Bytes beginning = unread().first(std::min(unread().size(), kRecognizeBytes));
    return stream_error(fault, beginning, files_->name(order_[stream_]), record_);
  };
  try {
    if (offset_ == 0) (void)peek(kRecognizeBytes);
  } catch (const Error&) {
    // The stream has more damage after this fault, which later reads report.
    return located();
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
      const bool is_at_end = unread().size() < kHeaderBytes;
      record_ = place->record;
      offset_ = place->frame.offset;
      fault.offset += offset_;
      skip_rest(error_in(*place, fault), is_at_end);
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
    if (!next_header(place)) return false;
    if (begin > bytes_max || place->frame.size() > bytes_max - begin) {
      Error too_large =
          error(Errc::kRecordTooLarge,
                "compressed records in memory exceed the larger of memory_limit and "
                "1 GiB: reduce batch_size or window, or pass cache_dir=");
      too_large.record = record_;
      too_large.offset = offset_;
      throw too_large;
    }
    end_frame(read(place->frame.size(), frames), *place);
    return true;
  };
  return next_verified(place, read_frame,
                       [&] { return check_payload(Bytes(*frames).subspan(begin)); });
}

bool FrameStream::next(StreamRecord* record) {
  Place* const place = &record->place;
  const auto read_frame = [&] {
    if (!next_header(place)) return false;
    const std::uint64_t n = place->frame.size();
    // In place if the chunk also has the next header, which is read ahead.
    if (n + kHeaderBytes <= unread().size()) {
      record->frame = unread().first(n);
      n_consumed_ += n;
      end_frame(n, *place);
    } else {
      frame_.clear();
      end_frame(read(n, &frame_), *place);
      record->frame = frame_;
    }
    return true;
  };
  const auto check = [&] { return check_payload(record->frame); };
  if (!next_verified(place, read_frame, check)) return false;
  record->fault = check();
  record->fault.offset += place->frame.offset;
  return true;
}

bool FrameStream::verify(Verified* verified) {
  std::vector<std::uint8_t> footer;
  const auto read_frame = [&] {
    footer.clear();
    if (!next_header(&verified->place)) return false;
    std::uint32_t crc = 0;
    n_consumed_ += kHeaderBytes;
    std::uint64_t n_read = kHeaderBytes;
    n_read += consume(verified->place.frame.length, [&crc](Bytes bytes) {
      crc = crc32c_kernel().extend(crc, bytes);
    });
    n_read += read(kFooterBytes, &footer);
    end_frame(n_read, verified->place);
    verified->stored_crc = load_le<std::uint32_t>(footer.data());
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
  bool is_damaged = false;
  try {
    (void)peek(kHeaderBytes);
  } catch (const Error& error) {
    is_damaged = is_damage(error.code);  // the next read throws it again
  } catch (...) {
    if (streams_->is_stopped()) throw;
  }
  const Bytes header = unread();
  if (header.size() < kHeaderBytes) return header.empty() && !is_damaged;
  std::uint64_t length = 0;
  const Fault fault = check_header(header.data(), kUnknownSize, &length);
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
  chunk_.clear();
  n_consumed_ = 0;
}

// Verifies the header of the next frame, without consuming it.
bool FrameStream::next_header(Place* place) {
  while (stream_ < order_.size() && peek(kHeaderBytes).empty()) advance();
  if (stream_ == order_.size()) return false;
  const Bytes header = unread();
  std::uint64_t length = 0;
  Fault fault{
      .code = Errc::kTruncatedHeader, .found = header.size(), .expected = kHeaderBytes};
  if (header.size() >= kHeaderBytes) {
    fault = stream_header(header.data(), &length,
                          std::min(kMaxPayloadBytes, files_->record_bytes_max()));
  }
  if (fault) throw error_at(fault);
  *place = {order_[stream_], record_, {offset_, length}};
  return true;
}

// Ends a frame of which `n_read` bytes were consumed.
void FrameStream::end_frame(std::uint64_t n_read, const Place& place) {
  if (n_read < place.frame.size()) {
    throw error_at({.code = Errc::kTruncatedPayload,
                    .found = n_read - kHeaderBytes,
                    .expected = place.frame.length + kFooterBytes});
  }
  ++record_;
  offset_ = place.frame.end();
}

Error FrameStream::error_in(const Place& place, const Fault& fault) const {
  return record_error(fault, describe(fault), place, *files_);
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
