#include "record/stream.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "crc32c/crc32c.h"
#include "record/reader.h"

namespace fastrec {
namespace {

constexpr std::chrono::milliseconds kPatience(50);
constexpr std::uint64_t kUnknownSize = std::numeric_limits<std::uint64_t>::max();

// Reads a whole header. How many bytes follow it is unknown.
Fault stream_header(const std::uint8_t* header, std::uint64_t* length,
                    std::uint64_t length_max) {
  Fault fault = check_header(header, kUnknownSize, length);
  // Nothing is that long: no stream can end so late.
  if (fault.code == Errc::kTruncatedPayload) *length = kUnknownSize;
  if (fault && fault.code != Errc::kTruncatedPayload) return fault;
  if (*length <= length_max) return {};
  return {.code = Errc::kRecordTooLarge, .found = *length, .expected = length_max};
}

// `beginning` is what the file begins with, if the fault is there.
Error stream_error(Fault fault, Bytes beginning, const std::string& name,
                   std::uint64_t record) {
  std::string reason = describe(fault);
  if (fault.offset == 0 &&
      (fault.code == Errc::kLengthCrc || fault.code == Errc::kTruncatedHeader)) {
    const Content content = recognize(beginning);
    if (content == Content::kGzip || content == Content::kZlib) {
      // The stream is the content already, and not compressed again by any reader.
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

// Whether the stream is damaged, and others may not be.
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
      next_look_(std::chrono::steady_clock::now() + kPatience) {}

void FrameStream::look_up() {
  if (!on_wait_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + kPatience;
  on_wait_();
}

// Whether the current stream has more bytes.
bool FrameStream::has_bytes() {
  if (!ahead_.empty()) return true;
  while (taken_ == chunk_.size()) {
    taken_ = 0;
    chunk_.clear();
    const ByteStreams::PopResult taken = streams_->pop(kPatience, &chunk_);
    if (taken == ByteStreams::PopResult::kEnd) return false;
    look_up();
  }
  return true;
}

// Passes `n` bytes on, or as many as there are, and returns how many those are.
template <typename OnBytes>
std::uint64_t FrameStream::take(std::uint64_t n, const OnBytes& on_bytes) {
  const auto n_ahead =
      static_cast<std::size_t>(std::min<std::uint64_t>(n, ahead_.size()));
  on_bytes(Bytes(ahead_).first(n_ahead));
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(n_ahead));
  std::uint64_t n_done = n_ahead;
  while (n_done < n && has_bytes()) {
    const auto n_here = static_cast<std::size_t>(
        std::min<std::uint64_t>(n - n_done, chunk_.size() - taken_));
    on_bytes(Bytes(chunk_).subspan(taken_, n_here));
    taken_ += n_here;
    n_bytes_ += n_here;
    n_done += n_here;
  }
  return n_done;
}

// Appends them.
std::uint64_t FrameStream::read(std::uint64_t n, std::vector<std::uint8_t>* into) {
  return take(n, [into](Bytes bytes) {
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
      // The damage of the stream is found when it is read on; this comes before it.
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

// Reads frames until one is proven or recovery is off. `check` returns what is wrong
// with the payload of the frame that was just read.
template <typename ReadFrame, typename CheckPayload>
bool FrameStream::next_proven(Place* place, const ReadFrame& read_frame,
                              const CheckPayload& check) {
  while (true) {
    try {
      if (!read_frame()) return false;
      if (recovery_ == Recovery::kNone || is_end_proven()) return true;
      Fault fault = check();
      if (!fault) return true;
      const bool is_at_end = ahead_.size() < kHeaderBytes;
      record_ = place->record;
      offset_ = place->frame.offset;
      fault.offset += offset_;
      leave(error_in(*place, fault, describe(fault)), is_at_end);
    } catch (const Error& error) {
      if (recovery_ == Recovery::kNone || !is_damage(error.code)) throw;
      // Where the header is wrong, the content may go on.
      leave(error, error.code != Errc::kLengthCrc && error.code != Errc::kNotTfrecord);
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
                "the records of compressed files that must be held at once "
                "take more than memory_limit and 1 GiB: give a smaller "
                "batch_size or window, or cache_dir=");
      too_large.record = record_;
      too_large.offset = offset_;
      throw too_large;
    }
    end_frame(read(n_rest, frames), place, frames, begin);
    return true;
  };
  return next_proven(place, read_frame,
                     [&] { return check_payload(Bytes(*frames).subspan(begin)); });
}

bool FrameStream::pass(Passed* passed) {
  std::vector<std::uint8_t> frame;  // its two ends
  const auto read_frame = [&] {
    frame.clear();
    if (!next_header(&passed->place, &frame)) return false;
    std::uint32_t crc = 0;
    std::uint64_t n_read = take(passed->place.frame.length, [&crc](Bytes bytes) {
      crc = crc32c_kernel().extend(crc, bytes);
    });
    if (n_read == passed->place.frame.length) n_read += read(kFooterBytes, &frame);
    end_frame(n_read, &passed->place, &frame, 0);
    passed->stored_crc = load_le<std::uint32_t>(frame.data() + kHeaderBytes);
    passed->fault = {};
    if (passed->stored_crc != crc32c_mask(crc)) {
      passed->fault = {.code = Errc::kPayloadCrc,
                       .offset = kHeaderBytes,
                       .found = passed->stored_crc,
                       .expected = crc32c_mask(crc)};
    }
    return true;
  };
  if (!next_proven(&passed->place, read_frame, [&] { return passed->fault; })) {
    return false;
  }
  passed->fault.offset += passed->place.frame.offset;
  return true;
}

// Whether the end of the frame that was just read is proven: by the next header, or by
// the end of the stream.
bool FrameStream::is_end_proven() {
  std::vector<std::uint8_t> header;
  bool is_damaged = false;
  try {
    read(kHeaderBytes, &header);
  } catch (const Error& error) {
    is_damaged = is_damage(error.code);  // reading on throws it again
  } catch (const IoError&) {
    is_damaged = false;
  }
  ahead_ = std::move(header);
  if (ahead_.size() < kHeaderBytes) return ahead_.empty() && !is_damaged;
  std::uint64_t length = 0;
  const Fault fault = check_header(ahead_.data(), kUnknownSize, &length);
  // A length that its checksum proves does so for the end of the frame before, too.
  return !fault || fault.code == Errc::kTruncatedPayload;
}

// Leaves out the rest of the current stream, which may have been read to its end.
void FrameStream::leave(const Error& error, bool is_at_end) {
  gaps_.push_back({record_, offset_,
                   is_at_end ? n_bytes_ - n_bytes_before_ : Gap::kUnknownEnd, error});
  advance();
}

void FrameStream::advance() {
  streams_->advance();
  ++stream_;
  offset_ = record_ = 0;
  n_bytes_before_ = n_bytes_;
  ahead_.clear();
  chunk_.clear();
  taken_ = 0;
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

// `n_read` bytes were read behind the header, which is at `begin`.
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
  for (FrameStream::Passed passed; stream->pass(&passed);) {
    index.offsets.push_back(passed.place.frame.end());
    index.payload_crcs.push_back(passed.stored_crc);
  }
  return index;
}

}  // namespace fastrec
