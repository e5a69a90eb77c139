#include "record/recovery.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "crc32c/crc32c.h"
#include "record/scan.h"

namespace fastrec {
namespace {

// What is read at once where headers are searched for or walked, and where a payload is
// only checked.
constexpr std::uint64_t kBlockBytes = std::uint64_t{256} << 10;
constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

// A file may be full of headers that are in order, each of a long payload that is not.
// What is read in vain is bounded by this multiple of the file, or by these bytes.
constexpr std::uint64_t kMostWasteTimes = 8;
constexpr std::uint64_t kMostWasteBytes = std::uint64_t{64} << 20;

std::uint32_t length_crc(std::uint64_t length) {
  std::uint8_t bytes[kLengthBytes];
  store_le(bytes, length);
  return crc32c_mask(crc32c(bytes));
}

}  // namespace

std::optional<HeaderRepair> repair_header(
    const std::uint8_t* bytes, std::uint64_t remaining,
    const std::function<bool(std::uint64_t length)>& payload_holds) {
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
      found->length > kMaxPayloadBytes || !payload_holds(found->length)) {
    return std::nullopt;
  }
  return found;
}

std::size_t find_header(Bytes block, std::size_t at, std::size_t end,
                        std::uint64_t remaining) {
  static const std::uint32_t kCrcOfZeros = length_crc(0);
  for (; at < end; ++at) {
    const std::uint8_t* header = block.data() + at;
    // Cheap and almost always decisive: no length of a whole frame in this file has a
    // bit above those of what remains, and zeros are no header.
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
  go_to(offset, record);
}

void FrameWalk::go_to(std::uint64_t offset, std::uint64_t record) {
  offset_ = offset;
  record_ = record;
  pending_.reset();
}

std::vector<Gap> FrameWalk::take_gaps() { return std::exchange(gaps_, {}); }

void FrameWalk::look_up() const {
  if (cancelled_->load(std::memory_order_relaxed)) throw ScanCancelled();
}

// The bytes from `offset` on: `length` of them, where the file has that many.
Bytes FrameWalk::piece(std::uint64_t offset, std::uint64_t length,
                       Buffer* buffer) const {
  const Mapping* mapping = view_->mapping();
  if (mapping == nullptr) return view_->copy(offset, length, buffer);
  const auto n = static_cast<std::size_t>(std::min(length, view_->size() - offset));
  return mapping->bytes().subspan(static_cast<std::size_t>(offset), n);
}

// The bytes from `offset` on: at least a header, where the file has that much left.
Bytes FrameWalk::header_at(std::uint64_t offset) {
  if (offset < block_begin_ || offset - block_begin_ + kHeaderBytes > block_.size()) {
    block_ = piece(offset, kBlockBytes, &buffer_);
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
      // A file that was shortened meanwhile has fewer bytes than it said.
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
    // A frame that is not asked to prove its end comes out at once.
    if (recovery_ != Recovery::kNone) std::swap(found, pending_);
    if (found) {
      *frame = *found;
      ++record_;
      return true;
    }
  }
}

// Finds where the chain goes on that is broken at offset_: at a frame there, if it can
// be repaired.
std::optional<Frame> FrameWalk::bridge(Fault fault) {
  if (recovery_ == Recovery::kNone) throw framing_error(*view_, fault, record_);
  if (recovery_ == Recovery::kRepair) {
    if (const std::optional<Frame> repaired = repair(fault)) return repaired;
  }
  std::uint64_t begin = offset_;
  // A length that its checksum proves does so for the end of the frame before, too.
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
  // Nothing is damaged here: it is not read as what it is.
  if (error.code == Errc::kCompressed) throw error;
  const bool is_searched = recovery_ != Recovery::kSkip;
  const std::uint64_t end =
      is_searched ? find(begin + 1, view_->size()) : view_->size();
  if (is_searched && end == view_->size() && is_worn_out()) {
    error.reason +=
        "; the search behind it was given up, after " + std::to_string(n_wasted_) +
        " bytes of records whose headers are in order and whose payloads are not";
  }
  gaps_.push_back({record, begin, end, std::move(error)});
  offset_ = end;
  return std::nullopt;
}

// The frame at offset_, if one flipped bit is all that is wrong with its header.
std::optional<Frame> FrameWalk::repair(const Fault& fault) {
  if (fault.code != Errc::kLengthCrc) return std::nullopt;
  const Bytes header = header_at(offset_);
  if (header.size() < kHeaderBytes) return std::nullopt;
  const std::optional<HeaderRepair> repair =
      repair_header(header.data(), view_->size() - offset_,
                    [this](std::uint64_t length) { return holds({offset_, length}); });
  if (!repair) return std::nullopt;
  Error error(fault.code, describe(fault), view_->name());
  error.record = record_ + (pending_ ? 1 : 0);
  error.offset = fault.offset;
  const Frame frame{offset_, repair->length};
  repaired_.push_back({*error.record, frame, repair->bit, std::move(error)});
  return frame;
}

// Whether a search has read so much in vain that it ends.
bool FrameWalk::is_worn_out() const noexcept {
  return n_wasted_ / kMostWasteTimes >= view_->size() && n_wasted_ >= kMostWasteBytes;
}

// Whether the payload of a frame, which may be none, is what its checksum says.
bool FrameWalk::holds(const Frame& frame) {
  if (is_worn_out()) return false;
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

// The first frame that both checksums prove and that begins in the bytes
// [offset, end); the end of the file if there is none.
std::uint64_t FrameWalk::find(std::uint64_t offset, std::uint64_t end) {
  while (view_->size() - offset >= kFrameBytes && offset < end) {
    look_up();
    const Bytes block = header_at(offset);
    if (block.size() < kHeaderBytes) break;  // the file was shortened meanwhile
    const std::uint64_t remaining = view_->size() - offset;
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(
        block.size() - kHeaderBytes + 1, remaining - kFrameBytes + 1));
    std::size_t at = 0;
    while ((at = find_header(block, at, n, remaining)) < n) {
      const auto length = load_le<std::uint64_t>(block.data() + at);
      if (holds({offset + at, length})) return offset + at;
      if (is_worn_out()) return view_->size();
      ++at;
    }
    view_->check_valid(offset, n + kHeaderBytes - 1);
    offset += n;
  }
  return view_->size();
}

// Checks the payload of a frame that lies in the file. Offsets of faults count from the
// beginning of the file.
Fault FrameWalk::check(const Frame& frame) {
  std::uint32_t crc = 0;
  std::uint64_t at = frame.payload();
  const std::uint64_t end = at + frame.length;
  while (at < end) {
    look_up();
    const Bytes bytes = piece(at, std::min(end - at, kPieceBytes), &payload_buffer_);
    if (bytes.empty()) break;
    crc = crc32c_kernel().extend(crc, bytes);
    at += bytes.size();
  }
  const Bytes footer = piece(end, kFooterBytes, &payload_buffer_);
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

// Whether there are only zeros from `offset` to the end of the file.
bool FrameWalk::is_zero_from(std::uint64_t offset) {
  while (offset < view_->size()) {
    look_up();
    const Bytes bytes = piece(offset, kPieceBytes, &payload_buffer_);
    if (bytes.empty()) break;  // the file was shortened meanwhile
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
    // A length that is proven and does not fit into the file.
    if (fault.code == Errc::kTruncatedPayload) return view.size();
    return std::nullopt;
  };
  const std::optional<std::uint64_t> end = next_of(payload - kHeaderBytes);
  return end && (*end == view.size() || next_of(*end));
}

Error framing_error(const FileView& view, Fault fault, std::uint64_t n_records) {
  std::string reason = describe(fault);
  if (fault.offset == 0 &&
      (fault.code == Errc::kLengthCrc || fault.code == Errc::kTruncatedHeader)) {
    Buffer buffer;
    Content content = recognize(view.copy(0, kRecognizeBytes, &buffer));
    if (content == Content::kGzip || content == Content::kZlib) {
      const std::atomic<bool> cancelled{false};
      FrameWalk walk(Recovery::kRepair, &cancelled);
      if (walk.holds_frames(view)) content = Content::kTfrecord;
    }
    reason = describe_foreign(content, &fault);
  }
  const std::string change = view.describe_change();
  if (!change.empty()) reason += "; " + change;
  Error error(fault.code, std::move(reason), view.name());
  error.record = n_records;
  error.offset = fault.offset;
  return error;
}

}  // namespace fastrec
