#include "record/reader.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "file/guard.h"

namespace fastrec {
namespace {

// What is read at once. A mapping is copied in pieces that stay in the second-level
// cache; a system call costs more, so it gets more to do.
constexpr std::uint64_t kMappedBlockBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kPreadBlockBytes = std::uint64_t{512} << 10;

// As many mapped files does each reader keep at hand.
constexpr std::size_t kMostMapped = 256;

// Of each mapped record the beginning is prefetched, this many records ahead: from 2 to
// 16 measured the same. The CPU itself goes on from there.
constexpr std::size_t kPrefetchPlaces = 4;
constexpr std::uint64_t kPrefetchBytes = 1024;

// Places that are announced to find out whether anything has to be read from a disk.
constexpr std::size_t kProbes = 4;

// A longer run of neighbours counts as a scan.
constexpr std::uint64_t kScanBytes = std::uint64_t{1} << 20;

}  // namespace

RecordReader::RecordReader(std::shared_ptr<FileTable> files)
    : files_(std::move(files)), mapped_(std::min(files_->size(), kMostMapped)) {}

std::uint64_t RecordReader::block_bytes(const FileView& view) noexcept {
  return view.mapping() != nullptr ? kMappedBlockBytes : kPreadBlockBytes;
}

void RecordReader::start(std::span<const Place> places, const std::uint8_t* frames) {
  places_ = places;
  next_ = 0;
  block_end_place_ = 0;
  if (frames != nullptr) return start_block(frames);
  stand_guard();
  announce();
  for (std::size_t place = 0; place < kPrefetchPlaces; ++place) prefetch(place);
}

const FileView* RecordReader::find(std::size_t file) const noexcept {
  const OpenFile& mapped = mapped_[file % mapped_.size()];
  if (mapped.view && mapped.file == file) return mapped.view.get();
  if (read_.view && read_.file == file) return read_.view.get();
  return nullptr;
}

const FileView* RecordReader::open(std::size_t file) {
  if (const FileView* view = find(file)) return view;
  std::shared_ptr<const FileView> view = files_->open(file);
  const bool is_mapped = view->mapping() != nullptr;
  OpenFile& kept = is_mapped ? mapped_[file % mapped_.size()] : read_;
  kept = {file, std::move(view)};
  is_remote_ = kept.view->is_remote();
  return kept.view.get();
}

void RecordReader::prefetch(std::size_t place) const noexcept {
  if (place >= places_.size()) return;
  const Frame& frame = places_[place].frame;
  const FileView* view = find(places_[place].file);
  if (view == nullptr) return;
  view->prefetch(frame.offset,
                 std::min(frame.length, kPrefetchBytes - kFrameBytes) + kFrameBytes);
}

// One by one, a disk that can read many places at a time would read one.
void RecordReader::announce() {
  if (places_.size() < 2) return;
  const std::uint64_t n_disk_reads = count_disk_reads();
  const bool is_warm = n_disk_reads == n_disk_reads_ && !is_remote_;
  n_disk_reads_ = n_disk_reads;
  if (is_warm) return;

  std::size_t n_announced = 0;
  std::size_t end = 0;  // of a run of neighbours
  while (end < places_.size()) {
    const std::size_t begin = end;
    const Place& first = places_[begin];
    std::uint64_t run_bytes = first.frame.size();
    ++end;
    while (end < places_.size() && places_[end].file == first.file &&
           places_[end].frame.offset == first.frame.offset + run_bytes) {
      run_bytes += places_[end++].frame.size();
    }
    // The system reads ahead of a scan by itself, and does it better.
    if (run_bytes > kScanBytes || end - begin == places_.size()) continue;
    try {
      open(first.file)->read_ahead(first.frame.offset, run_bytes);
    } catch (const std::exception&) {
      continue;  // next() will say so, if it comes to that
    }
    ++n_announced;
    if (n_announced == kProbes && !is_remote_ && count_disk_reads() == n_disk_reads) {
      return;
    }
  }
}

// All places are in one block.
void RecordReader::start_block(const std::uint8_t* frames) {
  view_ = nullptr;
  n_read_ = n_intact_ = 0;
  lengths_.clear();
  std::size_t n_bytes = 0;
  for (const Place& place : places_) {
    lengths_.push_back(place.frame.length);
    n_bytes += place.frame.size();
  }
  rest_ = {frames, n_bytes};
  block_end_place_ = places_.size();
}

Fault RecordReader::load_block() {
  const Place& first = places_[next_];
  view_ = open(first.file);
  const Frame& frame = first.frame;
  // An index that is stale or forged may point anywhere.
  if (frame.offset > view_->size() || view_->size() - frame.offset < kFrameBytes ||
      frame.length > view_->size() - frame.offset - kFrameBytes) {
    return {
        .code = Errc::kIndexPastEnd, .offset = frame.offset, .found = view_->size()};
  }
  const std::uint64_t payload_bytes_max =
      std::min(kMaxPayloadBytes, files_->record_bytes_max());
  if (frame.length > payload_bytes_max) {
    return {.code = Errc::kRecordTooLarge,
            .offset = frame.offset,
            .found = frame.length,
            .expected = payload_bytes_max};
  }

  const std::uint64_t most = block_bytes(*view_);
  std::uint64_t end = frame.end();
  std::size_t place = next_ + 1;
  lengths_.assign(1, frame.length);
  while (place < places_.size() && places_[place].file == first.file &&
         places_[place].frame.offset == end &&
         places_[place].frame.length <= std::min(most, payload_bytes_max) &&
         places_[place].frame.end() <= view_->size() &&
         places_[place].frame.end() - frame.offset <= most) {
    end = places_[place].frame.end();
    lengths_.push_back(places_[place].frame.length);
    ++place;
  }
  prefetch(place + kPrefetchPlaces - 1);
  rest_ = view_->copy(frame.offset, end - frame.offset, &buffer_);
  // Where the file was shortened since it was opened, check() finds what is missing.
  if (rest_.size() < end - frame.offset) lengths_.clear();
  block_end_place_ = place;
  n_read_ = n_intact_ = 0;
  return {};
}

// What is wrong with the next frame of the block.
Fault RecordReader::check(const Frame& frame) const {
  const std::uint64_t n_here = rest_.size();
  if (n_here < frame.size()) {
    const bool has_header = n_here >= kHeaderBytes;
    return {.code = has_header ? Errc::kTruncatedPayload : Errc::kTruncatedHeader,
            .offset = frame.offset,
            .found = has_header ? n_here - kHeaderBytes : n_here,
            .expected = has_header ? frame.length + kFooterBytes : kHeaderBytes};
  }
  std::uint64_t length = 0;
  const std::uint64_t remaining = view_ ? view_->size() - frame.offset : n_here;
  Fault fault = check_header(rest_.data(), remaining, &length);
  if (!fault && length != frame.length) {
    fault = {.code = Errc::kIndexMismatch,
             .found = frame.offset + length + kFrameBytes,
             .expected = frame.end()};
  }
  if (!fault) fault = check_payload(rest_.first(frame.size()));
  if (fault) fault.offset += frame.offset;
  return fault;
}

Fault RecordReader::next(Bytes* payload) {
  if (next_ >= block_end_place_) {
    if (Fault fault = load_block()) {
      ++next_;
      return fault;
    }
  }
  if (n_read_ == n_intact_ && n_read_ < lengths_.size()) {
    n_intact_ +=
        kernel_.count_intact(rest_.data(), std::span(lengths_).subspan(n_read_));
  }
  const Frame& frame = places_[next_++].frame;
  const Bytes bytes = rest_.first(std::min<std::uint64_t>(rest_.size(), frame.size()));
  Fault fault;
  if (n_read_ == n_intact_) [[unlikely]] {
    fault = check(frame);
    ++n_intact_;
  }
  ++n_read_;
  rest_ = rest_.subspan(bytes.size());
  if (!fault) *payload = bytes.subspan(kHeaderBytes, frame.length);
  return fault;
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
  if (error_class(fault.code) == ErrorClass::kCorruption) {
    const std::string change = files.describe_change(place.file);
    if (!change.empty()) reason += "; " + change;
  }
  Error error(fault.code, std::move(reason), files.name(place.file));
  error.record = place.record;
  error.offset = fault.offset;
  return error;
}

}  // namespace fastrec
