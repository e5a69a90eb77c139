#include "record/reader.h"

#include <algorithm>
#include <utility>

namespace fastrec {
namespace {

// What is read at once. A mapping is copied in pieces that stay in the second-level
// cache; a system call costs more, so it gets more to do.
constexpr std::uint64_t kMappedBlockBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kPreadBlockBytes = std::uint64_t{512} << 10;

}  // namespace

RecordReader::RecordReader(std::shared_ptr<FileTable> files)
    : files_(std::move(files)) {}

void RecordReader::start(std::span<const Place> places) {
  places_ = places;
  next_ = 0;
  block_end_place_ = 0;
}

Fault RecordReader::load_block() {
  const Place& first = places_[next_];
  if (!view_ || view_file_ != first.file) {
    view_ = files_->open(first.file);
    view_file_ = first.file;
  }
  const Frame& frame = first.frame;
  // An index that is stale or forged may point anywhere.
  if (frame.offset > view_->size() || view_->size() - frame.offset < kFrameBytes ||
      frame.length > view_->size() - frame.offset - kFrameBytes) {
    return {
        .code = Errc::kIndexPastEnd, .offset = frame.offset, .found = view_->size()};
  }
  if (frame.length > kMaxPayloadBytes) {
    return {.code = Errc::kRecordTooLarge,
            .offset = frame.offset,
            .found = frame.length,
            .expected = kMaxPayloadBytes};
  }

  const std::uint64_t block_bytes =
      view_->mapping() != nullptr ? kMappedBlockBytes : kPreadBlockBytes;
  std::uint64_t end = frame.end();
  std::size_t place = next_ + 1;
  while (place < places_.size() && places_[place].file == first.file &&
         places_[place].frame.offset == end &&
         places_[place].frame.length <= block_bytes &&
         places_[place].frame.end() <= view_->size() &&
         places_[place].frame.end() - frame.offset <= block_bytes) {
    end = places_[place].frame.end();
    ++place;
  }
  block_ = view_->copy(frame.offset, end - frame.offset, &buffer_);
  block_begin_ = frame.offset;
  block_end_place_ = place;
  return {};
}

Fault RecordReader::next(Bytes* payload) {
  if (next_ >= block_end_place_) {
    if (Fault fault = load_block()) return fault;
  }
  const Frame& frame = places_[next_++].frame;
  const std::uint64_t begin = frame.offset - block_begin_;
  const std::uint64_t n_here =
      block_.size() - std::min<std::uint64_t>(begin, block_.size());
  if (n_here < frame.size()) {
    // The file was shortened since it was opened.
    const bool has_header = n_here >= kHeaderBytes;
    return {.code = has_header ? Errc::kTruncatedPayload : Errc::kTruncatedHeader,
            .offset = frame.offset,
            .found = has_header ? n_here - kHeaderBytes : n_here,
            .expected = has_header ? frame.length + kFooterBytes : kHeaderBytes};
  }
  const Bytes bytes = block_.subspan(begin, frame.size());

  std::uint64_t length = 0;
  Fault fault = check_header(bytes.data(), view_->size() - frame.offset, &length);
  if (!fault && length != frame.length) {
    fault = {.code = Errc::kIndexMismatch,
             .found = frame.offset + length + kFrameBytes,
             .expected = frame.end()};
  }
  if (!fault) fault = check_payload(bytes);
  if (fault) {
    fault.offset += frame.offset;
    return fault;
  }
  *payload = bytes.subspan(kHeaderBytes, frame.length);
  return {};
}

std::uint32_t stored_payload_crc(const Place& place, FileTable* files) {
  const std::shared_ptr<const FileView> view = files->open(place.file);
  Buffer buffer;
  const Bytes footer =
      view->copy(place.frame.payload() + place.frame.length, kFooterBytes, &buffer);
  if (footer.size() < kFooterBytes) {
    const Fault fault{.code = Errc::kIndexPastEnd,
                      .offset = place.frame.offset,
                      .found = view->size()};
    throw record_error(fault, describe(fault), place, *files);
  }
  return load_le<std::uint32_t>(footer.data());
}

Error record_error(const Fault& fault, std::string reason, const Place& place,
                   const FileTable& files) {
  Error error(fault.code, std::move(reason), files.name(place.file));
  error.record = place.record;
  error.offset = fault.offset;
  return error;
}

}  // namespace fastrec
