#include "record/recovery.h"

#include <algorithm>
#include <utility>

#include "crc32c/crc32c.h"
#include "record/scan.h"

namespace fastrec {
namespace {

// What is read at once where headers are searched for or walked, and where a payload is
// only checked.
constexpr std::uint64_t kBlockBytes = std::uint64_t{256} << 10;
constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

}  // namespace

void FrameWalk::start(const FileView& view, std::uint64_t offset,
                      std::uint64_t record) {
  view_ = &view;
  offset_ = offset;
  record_ = record;
  pending_.reset();
  gaps_.clear();
  block_ = {};
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
      view_->check_kept(offset_, std::min(remaining, kHeaderBytes));
      if (fault) {
        fault.offset += offset_;
        bridge(fault);
      } else {
        found = Frame{offset_, length};
        offset_ = found->end();
      }
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

// Finds where the chain goes on that is broken at offset_.
void FrameWalk::bridge(Fault fault) {
  if (recovery_ == Recovery::kNone) throw framing_error(*view_, fault, record_);
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
  const std::uint64_t end =
      recovery_ == Recovery::kResync ? find(begin + 1) : view_->size();
  gaps_.push_back({record, begin, end, std::move(error)});
  offset_ = end;
}

// The first frame from `offset` on that both checksums prove, or the end of the file.
std::uint64_t FrameWalk::find(std::uint64_t offset) {
  static const std::uint32_t kCrcOfZeros = [] {
    constexpr std::uint8_t kZeros[kLengthBytes] = {};
    return crc32c_mask(crc32c(kZeros));
  }();
  while (view_->size() - offset >= kFrameBytes) {
    look_up();
    const Bytes block = header_at(offset);
    if (block.size() < kHeaderBytes) break;  // the file was shortened meanwhile
    const std::uint64_t n = std::min(block.size() - kHeaderBytes + 1,
                                     view_->size() - offset - kFrameBytes + 1);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint8_t* header = block.data() + i;
      const std::uint64_t remaining = view_->size() - offset - i;
      // Cheap and almost always decisive: no length of a whole frame in this file has a
      // bit above those of `remaining`, and zeros are no header.
      auto length = load_le<std::uint64_t>(header);
      if (length > remaining - kFrameBytes || length > kMaxPayloadBytes) continue;
      if (length == 0 && load_le<std::uint32_t>(header + kLengthBytes) != kCrcOfZeros) {
        continue;
      }
      if (check_header(header, remaining, &length)) continue;
      if (!check({offset + i, length})) return offset + i;
    }
    view_->check_kept(offset, n + kHeaderBytes - 1);
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
  view_->check_kept(frame.offset, frame.size());
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
    view_->check_kept(offset, bytes.size());
    offset += bytes.size();
  }
  return true;
}

Error framing_error(const FileView& view, Fault fault, std::uint64_t n_records) {
  std::string reason = describe(fault);
  if (fault.offset == 0 &&
      (fault.code == Errc::kLengthCrc || fault.code == Errc::kTruncatedHeader)) {
    Buffer buffer;
    const Bytes beginning = view.copy(0, kRecognizeBytes, &buffer);
    reason = describe_foreign(recognize(beginning), &fault);
  }
  const std::string change = view.describe_change();
  if (!change.empty()) reason += "; " + change;
  Error error(fault.code, std::move(reason), view.name());
  error.record = n_records;
  error.offset = fault.offset;
  return error;
}

}  // namespace fastrec
