// FrameCursor: a file -> the verified headers and payloads of its frames.
//
// Reads the file in blocks; mapped bytes are read in place. The cursor reports a file
// that was truncated after it was opened as one that ends earlier.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "file/file_view.h"
#include "record/framing.h"

namespace fastrec {

class FrameCursor {
 public:
  // Called with the number of bytes of payloads that were verified since the last call,
  // once for about kReportBytes, and with each new block. May throw to cancel.
  using OnRead = std::function<void(std::uint64_t n_bytes)>;
  static constexpr std::uint64_t kReportBytes = std::uint64_t{1} << 20;

  // `view` must stay alive. Headers are read in blocks of `block_bytes`.
  FrameCursor(const FileView* view, std::uint64_t block_bytes, OnRead on_read = {},
              FileView::Use use = FileView::Use::kLast)
      : view_(view),
        block_bytes_(block_bytes),
        on_read_(std::move(on_read)),
        use_(use) {}

  // Continues with another file.
  void start(const FileView& view) {
    view_ = &view;
    block_ = {};
  }

  // Whether the header at `offset` is in the current block.
  bool has_header(std::uint64_t offset) const noexcept {
    return offset >= block_begin_ &&
           offset - block_begin_ + kHeaderBytes <= block_.size();
  }

  // The bytes from `offset` on: at least a header, except at the end of the file.
  Bytes from(std::uint64_t offset) {
    if (!has_header(offset)) {
      report();
      block_ = bytes_at(offset, block_bytes_, &block_buffer_);
      block_begin_ = offset;
    }
    return block_.subspan(static_cast<std::size_t>(offset - block_begin_));
  }

  // Reads the header at `offset`. Offsets of faults count from the beginning of the
  // file, here and in check().
  Fault read(std::uint64_t offset, Frame* frame) {
    const Bytes header = from(offset);
    const std::uint64_t remaining =
        header.size() < kHeaderBytes ? header.size() : view_->size() - offset;
    frame->offset = offset;
    Fault fault = check_header(header.data(), remaining, &frame->length);
    view_->check_valid(offset, std::min(remaining, kHeaderBytes));
    if (fault) [[unlikely]]
      fault.offset += offset;
    return fault;
  }

  // Verifies the payload of a frame within the file.
  Fault check(const Frame& frame);

  // Returns the first offset in [begin, end) with a valid header of a frame that fits
  // into the file; otherwise `end`.
  std::uint64_t find(std::uint64_t begin, std::uint64_t end);

  // Calls on_read.
  void report() {
    if (on_read_) on_read_(std::exchange(n_unreported_, 0));
  }

  // Whether all bytes from `offset` to the end of the file are zero.
  bool is_zero_from(std::uint64_t offset);

 private:
  Bytes bytes_at(std::uint64_t offset, std::uint64_t length, Buffer* buffer) const;
  Bytes piece_at(std::uint64_t offset, std::uint64_t length);

  const FileView* view_;
  std::uint64_t block_bytes_;
  OnRead on_read_;
  std::uint64_t n_unreported_ = 0;
  FileView::Use use_;
  Buffer block_buffer_, piece_buffer_;
  Bytes block_;  // the bytes from block_begin_ on
  std::uint64_t block_begin_ = 0;
};

}  // namespace fastrec
