#include "record/stream.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "record/reader.h"

namespace fastrec {
namespace {

constexpr std::chrono::milliseconds kPatience(50);
constexpr std::uint64_t kUnknownSize = std::numeric_limits<std::uint64_t>::max();

// Reads a whole header. How many bytes follow it is unknown.
Fault stream_header(const std::uint8_t* header, std::uint64_t* length,
                    std::uint64_t length_max = kMaxPayloadBytes) {
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
    const ByteStreams::Taken taken = streams_->take(kPatience, &chunk_);
    if (taken == ByteStreams::Taken::kEnd) return false;
    look_up();
  }
  return true;
}

// Appends `n` bytes, or as many as there are, and returns how many those are.
std::uint64_t FrameStream::read(std::uint64_t n, std::vector<std::uint8_t>* into) {
  const std::size_t n_ahead =
      static_cast<std::size_t>(std::min<std::uint64_t>(n, ahead_.size()));
  const auto ahead_end = ahead_.begin() + static_cast<std::ptrdiff_t>(n_ahead);
  into->insert(into->end(), ahead_.begin(), ahead_end);
  ahead_.erase(ahead_.begin(), ahead_end);
  std::uint64_t n_read = n_ahead;
  while (n_read < n && has_bytes()) {
    const std::uint64_t n_here =
        std::min<std::uint64_t>(n - n_read, chunk_.size() - taken_);
    const auto from = chunk_.begin() + static_cast<std::ptrdiff_t>(taken_);
    into->insert(into->end(), from, from + static_cast<std::ptrdiff_t>(n_here));
    taken_ += static_cast<std::size_t>(n_here);
    n_read += n_here;
  }
  return n_read;
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

bool FrameStream::next(std::size_t bytes_max, Place* place,
                       std::vector<std::uint8_t>* frames) {
  const std::size_t begin = frames->size();
  while (true) {
    try {
      if (!next_frame(bytes_max, place, frames)) return false;
      if (recovery_ == Recovery::kNone) return true;
      const Fault fault = check_unproven(Bytes(*frames).subspan(begin));
      if (!fault) return true;
      const bool is_at_end = ahead_.size() < kHeaderBytes;
      const std::uint64_t end = offset_ + ahead_.size();
      record_ = place->record;
      offset_ = place->frame.offset;
      Fault in_stream = fault;
      in_stream.offset += offset_;
      leave(error_in(*place, in_stream, describe(fault)),
            is_at_end ? end : Gap::kUnknownEnd);
    } catch (const Error& error) {
      if (recovery_ == Recovery::kNone || !is_damage(error.code)) throw;
      // Where the header is wrong, the content may go on.
      const bool is_at_end =
          error.code != Errc::kLengthCrc && error.code != Errc::kNotTfrecord;
      leave(error, is_at_end ? offset_ + (frames->size() - begin) : Gap::kUnknownEnd);
    }
    frames->resize(begin);
  }
}

// What is wrong with the payload of the frame that was just read, if nothing proves its
// end: neither the next header nor the end of the stream.
Fault FrameStream::check_unproven(Bytes frame) {
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
  if (ahead_.size() < kHeaderBytes) {
    return ahead_.empty() && !is_damaged ? Fault{} : check_payload(frame);
  }
  std::uint64_t length = 0;
  const Fault fault = check_header(ahead_.data(), kUnknownSize, &length);
  // A length that its checksum proves does so for the end of the frame before, too.
  if (!fault || fault.code == Errc::kTruncatedPayload) return {};
  return check_payload(frame);
}

// Leaves out the rest of the current stream, whose end may be known.
void FrameStream::leave(const Error& error, std::uint64_t end) {
  gaps_.push_back({record_, offset_, end, error});
  advance();
}

void FrameStream::advance() {
  streams_->advance();
  ++stream_;
  offset_ = record_ = 0;
  ahead_.clear();
  chunk_.clear();
  taken_ = 0;
}

bool FrameStream::next_frame(std::size_t bytes_max, Place* place,
                             std::vector<std::uint8_t>* frames) {
  while (stream_ < order_.size() && !has_bytes()) advance();
  if (stream_ == order_.size()) return false;

  const std::size_t begin = frames->size();
  const std::uint64_t n_header = read(kHeaderBytes, frames);
  std::uint64_t length = 0;
  if (n_header < kHeaderBytes) {
    throw error_at(
        {.code = Errc::kTruncatedHeader, .found = n_header, .expected = kHeaderBytes},
        frames, begin);
  }
  const std::uint64_t length_max =
      std::min(kMaxPayloadBytes, files_->record_bytes_max());
  if (const Fault fault = stream_header(frames->data() + begin, &length, length_max)) {
    throw error_at(fault, frames, begin);
  }
  if (frames->size() > bytes_max ||
      length + kFooterBytes > bytes_max - frames->size()) {
    Error too_large = error(Errc::kRecordTooLarge,
                            "the records of compressed files that must be held at once "
                            "take more than memory_limit and 1 GiB: give a smaller "
                            "batch_size or window, or cache_dir=");
    too_large.record = record_;
    too_large.offset = offset_;
    throw too_large;
  }
  const std::uint64_t n_rest = read(length + kFooterBytes, frames);
  if (n_rest < length + kFooterBytes) {
    throw error_at({.code = Errc::kTruncatedPayload,
                    .found = n_rest,
                    .expected = length + kFooterBytes},
                   frames, begin);
  }
  *place = {order_[stream_], record_++, {offset_, length}};
  offset_ += length + kFrameBytes;
  return true;
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

Error FrameFeed::error_of(Fault fault) const {
  fault.offset += frame_.offset;
  return stream_error(fault, partial_, name_, n_frames_);
}

void FrameFeed::feed(Bytes bytes) {
  while (!bytes.empty()) {
    if (n_to_skip_ != 0) {
      const auto n =
          static_cast<std::size_t>(std::min<std::uint64_t>(n_to_skip_, bytes.size()));
      crc_ = crc32c_kernel().extend(crc_, bytes.first(n));
      n_to_skip_ -= n;
      bytes = bytes.subspan(n);
      continue;
    }
    const std::uint64_t n_wanted = is_in_frame_ ? kFooterBytes : kHeaderBytes;
    const auto n = static_cast<std::size_t>(
        std::min<std::uint64_t>(n_wanted - partial_.size(), bytes.size()));
    partial_.insert(partial_.end(), bytes.begin(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(n));
    if (partial_.size() == n_wanted && !is_in_frame_) {
      if (const Fault fault = stream_header(partial_.data(), &frame_.length)) {
        // A length that is proven proves the end of the frame before.
        if (fault.code == Errc::kRecordTooLarge) last_fault_ = {};
        // What follows helps to say what kind of file it is.
        const Bytes more = bytes.subspan(n).first(
            std::min<std::size_t>(bytes.size() - n, kRecognizeBytes));
        partial_.insert(partial_.end(), more.begin(), more.end());
        throw error_of(fault);
      }
      n_to_skip_ = frame_.length;
      is_in_frame_ = true;
      last_fault_ = {};
      crc_ = 0;
      partial_.clear();
    } else if (partial_.size() == n_wanted) {
      const auto stored = load_le<std::uint32_t>(partial_.data());
      last_ = frame_;
      if (stored != crc32c_mask(crc_)) {
        last_fault_ = {.code = Errc::kPayloadCrc,
                       .offset = frame_.payload(),
                       .found = stored,
                       .expected = crc32c_mask(crc_)};
      }
      on_frame(frame_, stored, last_fault_);
      frame_.offset = frame_.end();
      ++n_frames_;
      is_in_frame_ = false;
      partial_.clear();
    }
    bytes = bytes.subspan(n);
  }
}

void FrameFeed::finish() {
  if (is_in_frame_) {
    throw error_of({.code = Errc::kTruncatedPayload,
                    .found = frame_.length - n_to_skip_ + partial_.size(),
                    .expected = frame_.length + kFooterBytes});
  }
  if (!partial_.empty()) {
    throw error_of({.code = Errc::kTruncatedHeader,
                    .found = partial_.size(),
                    .expected = kHeaderBytes});
  }
}

std::optional<Error> FrameFeed::retract() {
  if (!last_fault_) return std::nullopt;
  Error error(last_fault_.code, describe(last_fault_), name_);
  error.record = --n_frames_;
  error.offset = last_fault_.offset;
  last_fault_ = {};
  on_retract(last_);
  return error;
}

void StreamScan::on_frame(const Frame& frame, std::uint32_t stored,
                          const Fault& /*fault*/) {
  crcs_.push_back(stored);
  offsets_.push_back(frame.end());
}

void StreamScan::on_retract(const Frame& /*frame*/) {
  crcs_.pop_back();
  offsets_.pop_back();
}

}  // namespace fastrec
