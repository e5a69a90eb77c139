#include "record/recovery.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "crc32c/crc32c.h"

namespace fastrec {
namespace {

// The size of a read of headers.
constexpr std::uint64_t kBlockBytes = std::uint64_t{256} << 10;

// A file may be full of valid headers, each with a long invalid payload. A search stops
// after it has read this multiple of the file size, and at least this many bytes, of
// invalid payloads.
constexpr std::uint64_t kMaxWasteRatio = 8;
constexpr std::uint64_t kMinWasteLimit = std::uint64_t{64} << 20;

std::uint32_t length_crc(std::uint64_t length) {
  std::uint8_t bytes[kLengthBytes];
  store_le(bytes, length);
  return crc32c_mask(crc32c(bytes));
}

}  // namespace

std::optional<HeaderRepair> repair_header(
    const std::uint8_t* bytes, std::uint64_t remaining,
    const std::function<bool(std::uint64_t length)>& is_payload_intact) {
  if (remaining < kFrameBytes) return std::nullopt;
  const auto stored_length = load_le<std::uint64_t>(bytes);
  const auto stored_crc = load_le<std::uint32_t>(bytes + kLengthBytes);
  std::optional<HeaderRepair> found;
  const std::uint32_t difference = stored_crc ^ length_crc(stored_length);
  if (std::has_single_bit(difference)) {
    const auto bit = static_cast<unsigned>(std::countr_zero(difference));
    found = {static_cast<unsigned>(8 * kLengthBytes) + bit, stored_length};
  }
  for (unsigned bit = 0; !found && bit < 8 * kLengthBytes; ++bit) {
    const std::uint64_t length = stored_length ^ std::uint64_t{1} << bit;
    if (length_crc(length) == stored_crc) found = {bit, length};
  }
  if (!found || found->length > remaining - kFrameBytes ||
      found->length > kMaxPayloadBytes || !is_payload_intact(found->length)) {
    return std::nullopt;
  }
  return found;
}

std::size_t find_header(Bytes block, std::size_t at, std::size_t end,
                        std::uint64_t remaining) {
  static const std::uint32_t kCrcOfZeros = length_crc(0);
  for (; at < end; ++at) {
    const std::uint8_t* header = block.data() + at;
    // Cheap tests first, which exclude nearly all offsets: a length must fit into the
    // file, and a length of 0 has a known checksum.
    auto length = load_le<std::uint64_t>(header);
    if (length > remaining - at - kFrameBytes || length > kMaxPayloadBytes) continue;
    if (length == 0 && load_le<std::uint32_t>(header + kLengthBytes) != kCrcOfZeros) {
      continue;
    }
    if (!check_header(header, remaining - at, &length)) break;
  }
  return at;
}

FrameWalk::FrameWalk(Recovery recovery, const ScanProgress* progress, FileView::Use use)
    : recovery_(recovery),
      cursor_(
          nullptr, kBlockBytes,
          [progress](std::uint64_t) {
            if (progress != nullptr) progress->check_cancelled();
          },
          use) {}

void FrameWalk::start(const FileView& view, std::uint64_t offset,
                      std::uint64_t record) {
  view_ = &view;
  n_wasted_ = 0;
  gaps_.clear();
  repaired_.clear();
  cursor_.start(view);
  seek(offset, record);
}

void FrameWalk::seek(std::uint64_t offset, std::uint64_t record) {
  offset_ = offset;
  record_ = record;
  pending_.reset();
}

std::vector<SkippedSpan> FrameWalk::take_gaps() { return std::exchange(gaps_, {}); }

bool FrameWalk::next(Frame* frame) {
  while (true) {
    std::optional<Frame> found;
    if (offset_ < view_->size()) {
      Frame at_offset;
      if (const Fault fault = cursor_.read(offset_, &at_offset)) {
        found = bridge(fault);
      } else {
        found = at_offset;
      }
      if (found) offset_ = found->end();
    } else if (!pending_) {
      return false;
    }
    // Without recovery, a frame is returned before its end is verified.
    if (recovery_ != Recovery::kNone) std::swap(found, pending_);
    if (found) {
      *frame = *found;
      ++record_;
      return true;
    }
  }
}

// Handles a break of the chain at offset_: returns the repaired frame, or moves offset_
// past a gap.
std::optional<Frame> FrameWalk::bridge(Fault fault) {
  if (recovery_ == Recovery::kNone) throw framing_error(*view_, fault, record_);
  if (recovery_ == Recovery::kRepair) {
    if (const std::optional<Frame> repaired = repair(fault)) return repaired;
  }
  std::uint64_t begin = offset_;
  // A valid length also verifies the end of the frame before.
  if (pending_ && fault.code != Errc::kTruncatedPayload) {
    if (const Fault of_payload = cursor_.check(*pending_)) {
      fault = of_payload;
      begin = pending_->offset;
      pending_.reset();
    }
  }
  if (begin == offset_ && cursor_.is_zero_from(offset_)) {
    fault = {.code = Errc::kZeros, .offset = offset_, .found = view_->size() - offset_};
  }
  const std::uint64_t record = record_ + (pending_ ? 1 : 0);
  Error error = framing_error(*view_, fault, record);
  // A compressed file is not damaged.
  if (error.code == Errc::kCompressed) throw error;
  const bool is_searched = recovery_ != Recovery::kSkip;
  const std::uint64_t end =
      is_searched ? find(begin + 1, view_->size()) : view_->size();
  if (is_searched && end == view_->size() && is_exhausted()) {
    error.reason += "; the search for the next record was stopped after " +
                    std::to_string(n_wasted_) +
                    " bytes of records with valid headers and damaged payloads";
  }
  gaps_.push_back({record, begin, end, std::move(error)});
  offset_ = end;
  return std::nullopt;
}

// Returns the frame at offset_ if its header can be repaired.
std::optional<Frame> FrameWalk::repair(const Fault& fault) {
  if (fault.code != Errc::kLengthCrc) return std::nullopt;
  const Bytes header = cursor_.from(offset_);
  if (header.size() < kHeaderBytes) return std::nullopt;
  const std::optional<HeaderRepair> repair = repair_header(
      header.data(), view_->size() - offset_,
      [this](std::uint64_t length) { return is_intact({offset_, length}); });
  if (!repair) return std::nullopt;
  Error error(fault.code, describe(fault), view_->name());
  error.record = record_ + (pending_ ? 1 : 0);
  error.offset = fault.offset;
  const Frame frame{offset_, repair->length};
  repaired_.push_back({*error.record, frame, repair->bit, std::move(error)});
  return frame;
}

// Whether a search has reached its limit of wasted reads.
bool FrameWalk::is_exhausted() const noexcept {
  return n_wasted_ / kMaxWasteRatio >= view_->size() && n_wasted_ >= kMinWasteLimit;
}

// Whether the payload of a candidate frame matches its checksum.
bool FrameWalk::is_intact(const Frame& frame) {
  if (is_exhausted()) return false;
  if (!cursor_.check(frame)) return true;
  n_wasted_ += frame.size();
  return false;
}

bool FrameWalk::holds_frames(const FileView& view) {
  start(view);
  if (view.size() < kFrameBytes) return false;
  Frame first;
  const Fault fault = cursor_.read(0, &first);
  return !fault || repair(fault) || find(1, kMaxEvidenceBytes) < view.size();
}

// The offset of the first verified frame that begins in [offset, end); the end of the
// file if there is none.
std::uint64_t FrameWalk::find(std::uint64_t offset, std::uint64_t end) {
  for (; (offset = cursor_.find(offset, end)) < end; ++offset) {
    Frame frame;
    if (!cursor_.read(offset, &frame) && is_intact(frame)) return offset;
    if (is_exhausted()) break;
  }
  return view_->size();
}

bool is_end_proven(const FileView& view, std::uint64_t payload) {
  if (payload < kHeaderBytes) return false;
  FrameCursor cursor(&view, kHeaderBytes);
  const auto next_of = [&](std::uint64_t offset) -> std::optional<std::uint64_t> {
    Frame frame;
    const Fault fault = cursor.read(offset, &frame);
    if (!fault) return frame.end();
    // A valid header of a frame that does not fit into the file.
    if (fault.code == Errc::kTruncatedPayload) return view.size();
    return std::nullopt;
  };
  const std::optional<std::uint64_t> end = next_of(payload - kHeaderBytes);
  return end && (*end == view.size() || next_of(*end));
}

namespace {

// The kind of a file; kTfrecord if it holds verified frames.
Content content_of(const FileView& view) {
  Buffer buffer;
  const Content content = recognize(view.copy(0, kRecognizeBytes, &buffer));
  if (content != Content::kGzip && content != Content::kZlib) return content;
  return FrameWalk(Recovery::kRepair).holds_frames(view) ? Content::kTfrecord : content;
}

}  // namespace

void check_plain(const FileView& view) {
  const Content content = content_of(view);
  if (content != Content::kGzip && content != Content::kZlib) return;
  throw Error(Errc::kCompressed,
              std::string(content == Content::kGzip ? "this is a GZIP file"
                                                    : "this looks like a ZLIB stream") +
                  ", but the files of the dataset that were checked are plain",
              view.name());
}

Error framing_error(const FileView& view, Fault fault, std::uint64_t n_records) {
  std::string reason = describe(fault);
  if (fault.offset == 0 &&
      (fault.code == Errc::kLengthCrc || fault.code == Errc::kTruncatedHeader)) {
    reason = describe_foreign(content_of(view), &fault);
  }
  const std::string change = view.describe_change();
  if (!change.empty()) reason += "; " + change;
  Error error(fault.code, std::move(reason), view.name());
  error.record = n_records;
  error.offset = fault.offset;
  return error;
}

}  // namespace fastrec
