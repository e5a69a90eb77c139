#include "record/recovery.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "crc32c/crc32c.h"
#include "record/scan.h"

namespace fastrec {
namespace {

// Sizes of reads: to find headers, and to verify payloads.
constexpr std::uint64_t kBlockBytes = std::uint64_t{256} << 10;
constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

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

void FrameWalk::start(const FileView& view, std::uint64_t offset,
                      std::uint64_t record) {
  view_ = &view;
  n_wasted_ = 0;
  gaps_.clear();
  repaired_.clear();
  block_ = {};
  seek(offset, record);
}

void FrameWalk::seek(std::uint64_t offset, std::uint64_t record) {
  offset_ = offset;
  record_ = record;
  pending_.reset();
}

std::vector<SkippedSpan> FrameWalk::take_gaps() { return std::exchange(gaps_, {}); }

void FrameWalk::check_cancelled() const {
  if (cancelled_->load(std::memory_order_relaxed)) throw ScanCancelled();
}

// The `length` bytes from `offset` on; fewer at the end of the file.
Bytes FrameWalk::bytes_at(std::uint64_t offset, std::uint64_t length,
                          Buffer* buffer) const {
  const Mapping* mapping = view_->mapping();
  if (mapping == nullptr) return view_->copy(offset, length, buffer, use_);
  const auto n = static_cast<std::size_t>(std::min(length, view_->size() - offset));
  return mapping->bytes().subspan(static_cast<std::size_t>(offset), n);
}

// The bytes from `offset` on: at least a header, except at the end of the file.
Bytes FrameWalk::header_at(std::uint64_t offset) {
  if (offset < block_begin_ || offset - block_begin_ + kHeaderBytes > block_.size()) {
    block_ = bytes_at(offset, kBlockBytes, &buffer_);
    block_begin_ = offset;
  }
  return block_.subspan(static_cast<std::size_t>(offset - block_begin_));
}

bool FrameWalk::next(Frame* frame) {
  while (true) {
    std::optional<Frame> found;
    if (offset_ < view_->size()) {
      std::uint64_t length = 0;
      const Bytes header = header_at(offset_);
      // If the file was truncated concurrently, it has fewer bytes than view_->size().
      const std::uint64_t remaining =
          header.size() < kHeaderBytes ? header.size() : view_->size() - offset_;
      Fault fault = check_header(header.data(), remaining, &length);
      view_->check_valid(offset_, std::min(remaining, kHeaderBytes));
      if (fault) {
        fault.offset += offset_;
        found = bridge(fault);
      } else {
        found = Frame{offset_, length};
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
    if (const Fault of_payload = check(*pending_)) {
      fault = of_payload;
      begin = pending_->offset;
      pending_.reset();
    }
  }
  if (begin == offset_ && is_zero_from(offset_)) {
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
  const Bytes header = header_at(offset_);
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
  if (!check(frame)) return true;
  n_wasted_ += frame.size();
  return false;
}

bool FrameWalk::holds_frames(const FileView& view) {
  start(view);
  if (view.size() < kFrameBytes) return false;
  const Bytes header = header_at(0);
  if (header.size() < kHeaderBytes) return false;
  std::uint64_t length = 0;
  const Fault fault = check_header(header.data(), view.size(), &length);
  return !fault || repair(fault) || find(1, kMaxEvidenceBytes) < view.size();
}

// The offset of the first verified frame that begins in [offset, end); the end of the
// file if there is none.
std::uint64_t FrameWalk::find(std::uint64_t offset, std::uint64_t end) {
  while (view_->size() - offset >= kFrameBytes && offset < end) {
    check_cancelled();
    const Bytes block = header_at(offset);
    if (block.size() < kHeaderBytes) break;  // the file was truncated concurrently
    const std::uint64_t remaining = view_->size() - offset;
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(
        block.size() - kHeaderBytes + 1, remaining - kFrameBytes + 1));
    std::size_t at = 0;
    while ((at = find_header(block, at, n, remaining)) < n) {
      const auto length = load_le<std::uint64_t>(block.data() + at);
      if (is_intact({offset + at, length})) return offset + at;
      if (is_exhausted()) return view_->size();
      ++at;
    }
    view_->check_valid(offset, n + kHeaderBytes - 1);
    offset += n;
  }
  return view_->size();
}

// Verifies the payload of a frame within the file. Offsets of faults count from the
// beginning of the file.
Fault FrameWalk::check(const Frame& frame) {
  std::uint32_t crc = 0;
  std::uint64_t at = frame.payload();
  const std::uint64_t end = at + frame.length;
  while (at < end) {
    check_cancelled();
    const Bytes bytes = bytes_at(at, std::min(end - at, kPieceBytes), &payload_buffer_);
    if (bytes.empty()) break;
    crc = crc32c_kernel().extend(crc, bytes);
    at += bytes.size();
  }
  const Bytes footer = bytes_at(end, kFooterBytes, &payload_buffer_);
  if (at < end || footer.size() < kFooterBytes) {
    return {.code = Errc::kTruncatedPayload,
            .offset = frame.offset,
            .found = at - frame.payload() + footer.size(),
            .expected = frame.length + kFooterBytes};
  }
  const auto stored = load_le<std::uint32_t>(footer.data());
  view_->check_valid(frame.offset, frame.size());
  if (stored == crc32c_mask(crc)) return {};
  return {.code = Errc::kPayloadCrc,
          .offset = frame.payload(),
          .found = stored,
          .expected = crc32c_mask(crc)};
}

// Whether all bytes from `offset` to the end of the file are zero.
bool FrameWalk::is_zero_from(std::uint64_t offset) {
  while (offset < view_->size()) {
    check_cancelled();
    const Bytes bytes = bytes_at(offset, kPieceBytes, &payload_buffer_);
    if (bytes.empty()) break;  // the file was truncated concurrently
    if (std::any_of(bytes.begin(), bytes.end(), [](auto byte) { return byte != 0; })) {
      return false;
    }
    view_->check_valid(offset, bytes.size());
    offset += bytes.size();
  }
  return true;
}

bool is_end_proven(const FileView& view, std::uint64_t payload) {
  if (payload < kHeaderBytes) return false;
  const auto next_of = [&view](std::uint64_t offset) -> std::optional<std::uint64_t> {
    Buffer buffer;
    const Bytes header = view.copy(offset, kHeaderBytes, &buffer);
    if (header.size() < kHeaderBytes) return std::nullopt;
    std::uint64_t length = 0;
    const Fault fault = check_header(header.data(), view.size() - offset, &length);
    if (!fault) return Frame{offset, length}.end();
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
  const std::atomic<bool> cancelled{false};
  FrameWalk walk(Recovery::kRepair, &cancelled);
  return walk.holds_frames(view) ? Content::kTfrecord : content;
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
