#include "record/frame_cursor.h"

#include "crc32c/crc32c.h"
#include "record/recovery.h"

namespace fastrec {
namespace {

// The size of a read of a payload: small enough to stay in the L2 cache until it is
// checksummed.
constexpr std::uint64_t kPieceBytes = std::uint64_t{512} << 10;

}  // namespace

// The `length` bytes from `offset` on; fewer at the end of the file.
Bytes FrameCursor::bytes_at(std::uint64_t offset, std::uint64_t length,
                            Buffer* buffer) const {
  const Mapping* mapping = view_->mapping();
  if (mapping == nullptr) return view_->copy(offset, length, buffer, use_);
  const auto n = static_cast<std::size_t>(std::min(length, view_->size() - offset));
  return mapping->bytes().subspan(static_cast<std::size_t>(offset), n);
}

// Up to `length` bytes from `offset` on, without reading bytes of the block again. Empty
// at the end of the file.
Bytes FrameCursor::piece_at(std::uint64_t offset, std::uint64_t length) {
  length = std::min(length, kPieceBytes);
  if (offset >= block_begin_ && offset - block_begin_ < block_.size()) {
    const Bytes rest = block_.subspan(static_cast<std::size_t>(offset - block_begin_));
    return rest.first(
        static_cast<std::size_t>(std::min<std::uint64_t>(length, rest.size())));
  }
  return bytes_at(offset, length, &piece_buffer_);
}

Fault FrameCursor::check(const Frame& frame) {
  std::uint32_t crc = 0, stored = 0;
  std::uint64_t at = frame.payload();
  const std::uint64_t end = at + frame.length;
  // Reads the footer with the payload.
  while (at < frame.end()) {
    const Bytes piece = piece_at(at, frame.end() - at);
    if (piece.empty()) {
      return {.code = Errc::kTruncatedPayload,
              .offset = frame.offset,
              .found = at - frame.payload(),
              .expected = frame.length + kFooterBytes};
    }
    const auto n = static_cast<std::size_t>(
        std::min<std::uint64_t>(piece.size(), end - std::min(at, end)));
    crc = crc32c_kernel().extend(crc, piece.first(n));
    for (std::size_t i = n; i < piece.size(); ++i) {
      stored |= std::uint32_t{piece[i]} << 8 * (at + i - end);
    }
    at += piece.size();
    n_unreported_ += piece.size();
    if (n_unreported_ >= kReportBytes) report();
  }
  n_unreported_ += kHeaderBytes;
  view_->check_valid(frame.offset, frame.size());
  if (stored == crc32c_mask(crc)) return {};
  return {.code = Errc::kPayloadCrc,
          .offset = frame.payload(),
          .found = stored,
          .expected = crc32c_mask(crc)};
}

std::uint64_t FrameCursor::find(std::uint64_t begin, std::uint64_t end) {
  while (begin < end && view_->size() - begin >= kFrameBytes) {
    report();
    const Bytes block = from(begin);
    if (block.size() < kHeaderBytes) break;  // the file was truncated concurrently
    const std::uint64_t remaining = view_->size() - begin;
    const auto n = static_cast<std::size_t>(
        std::min({std::uint64_t{block.size() - kHeaderBytes + 1},
                  remaining - kFrameBytes + 1, end - begin}));
    const std::size_t found = find_header(block, 0, n, remaining);
    view_->check_valid(begin, std::min(found + 1, n) + kHeaderBytes - 1);
    begin += found;
    if (found < n) return begin;
  }
  return end;
}

bool FrameCursor::is_zero_from(std::uint64_t offset) {
  while (offset < view_->size()) {
    report();
    const Bytes piece = piece_at(offset, view_->size() - offset);
    if (piece.empty()) break;  // the file was truncated concurrently
    if (std::any_of(piece.begin(), piece.end(), [](auto byte) { return byte != 0; })) {
      return false;
    }
    view_->check_valid(offset, piece.size());
    offset += piece.size();
  }
  return true;
}

}  // namespace fastrec
