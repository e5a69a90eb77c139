#include "loader/claims.h"

#include <utility>

#include "record/framing.h"

namespace fastrec {

IndexedClaims::IndexedClaims(std::shared_ptr<const Catalog> catalog, StepGrid grid)
    : catalog_(std::move(catalog)), grid_(grid) {}

void IndexedClaims::next(Claim* claim) {
  claim->places.clear();
  if (step_ == grid_.n_steps(catalog_->size())) return;
  const PositionRange range = grid_.range(step_, catalog_->size());
  claim->step = step_++;
  claim->first_position = range.first;
  catalog_->locate_range(range.first, range.count, &claim->places);
}

WalkedClaims::WalkedClaims(std::shared_ptr<FileTable> files, StepGrid grid)
    : files_(std::move(files)), grid_(grid) {}

void WalkedClaims::next(Claim* claim) {
  claim->places.clear();
  claim->step = step_;
  claim->first_position = step_ * grid_.batch_size;
  Place place;
  while (claim->places.size() < grid_.batch_size && walk(&place)) {
    claim->places.push_back(place);
  }
  if (grid_.drop_last && claim->places.size() < grid_.batch_size) claim->places.clear();
  ++step_;
}

bool WalkedClaims::walk(Place* place) {
  while (file_ < files_->size()) {
    if (!view_) view_ = files_->open(file_);
    if (offset_ < view_->size()) break;
    view_.reset();
    block_ = {};
    offset_ = record_ = 0;
    ++file_;
  }
  if (!view_) return false;

  std::uint64_t length = 0;
  const Bytes header = header_at(offset_);
  const std::uint64_t remaining =
      header.size() < kHeaderBytes ? header.size() : view_->size() - offset_;
  Fault fault = check_header(header.data(), remaining, &length);
  if (fault) {
    fault.offset += offset_;
    throw framing_error(*view_, fault, record_);
  }
  *place = {file_, record_++, {offset_, length}};
  offset_ += length + kFrameBytes;
  return true;
}

// The bytes from `offset` on: at least a header, where the file has that much left.
Bytes WalkedClaims::header_at(std::uint64_t offset) {
  if (const Mapping* mapping = view_->mapping()) {
    return mapping->bytes().subspan(static_cast<std::size_t>(offset));
  }
  constexpr std::uint64_t kBlockBytes = std::uint64_t{256} << 10;
  if (offset < block_begin_ || offset - block_begin_ + kHeaderBytes > block_.size()) {
    block_ = view_->copy(offset, kBlockBytes, &buffer_);
    block_begin_ = offset;
  }
  return block_.subspan(static_cast<std::size_t>(offset - block_begin_));
}

}  // namespace fastrec
