#include "record/reader.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "file/guard.h"

namespace fastrec {
namespace {

// What is read at once. A mapping is copied in pieces that stay in the second-level
// cache; a system call costs more, so it gets more to do.
constexpr std::uint64_t kMappedBlockBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kPreadBlockBytes = std::uint64_t{512} << 10;

// Scattered records of mapped files are copied together, up to this size. The CPU waits
// for several of them at a time: shuffled records of 855 bytes were read in 260 instead
// of 440 ns, and records of 234 bytes in 125 instead of 340 ns. 64 KiB measured alike.
constexpr std::size_t kGatheredBytes = std::size_t{16} << 10;

// As many mapped files does each reader keep at hand.
constexpr std::size_t kMostMapped = 256;

// Of each mapped record the beginning is prefetched, this many records ahead: 4 to 16
// measured alike. The CPU itself goes on from there.
constexpr std::size_t kPrefetchPlaces = 8;
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
  install_guard();
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

// An index that is stale or forged may point anywhere.
Fault RecordReader::check_place(const FileView& view, const Frame& frame) const {
  if (frame.offset > view.size() || view.size() - frame.offset < kFrameBytes ||
      frame.length > view.size() - frame.offset - kFrameBytes) {
    return {.code = Errc::kIndexPastEnd, .offset = frame.offset, .found = view.size()};
  }
  const std::uint64_t payload_bytes_max =
      std::min(kMaxPayloadBytes, files_->record_bytes_max());
  if (frame.length > payload_bytes_max) {
    return {.code = Errc::kRecordTooLarge,
            .offset = frame.offset,
            .found = frame.length,
            .expected = payload_bytes_max};
  }
  return {};
}

// Copies the frames of the next places to the buffer: those that are neighbours in the
// file, and after a few of them others of mapped files.
Fault RecordReader::load_block() {
  const Place& first = places_[next_];
  const FileView& view = *open(first.file);
  const Frame& frame = first.frame;
  if (Fault fault = check_place(view, frame)) return fault;

  const std::uint64_t most = block_bytes(view);
  std::uint64_t n_bytes = frame.size();
  lengths_.assign(1, frame.length);
  std::size_t place = next_ + 1;
  for (; place < places_.size(); ++place) {
    const Place& next = places_[place];
    if (next.file != first.file || next.frame.offset != frame.offset + n_bytes ||
        check_place(view, next.frame) || next.frame.end() - frame.offset > most) {
      break;
    }
    n_bytes += next.frame.size();
    lengths_.push_back(next.frame.length);
  }
  block_end_place_ = place;
  n_read_ = n_intact_ = 0;
  if (view.mapping() == nullptr) {
    rest_ = view.copy(frame.offset, n_bytes, &buffer_);
    // Where the file was shortened since it was opened, check() finds what is missing.
    if (rest_.size() < n_bytes) lengths_.clear();
    return {};
  }
  const MutableBytes room = buffer_.room(std::max(n_bytes, kGatheredBytes));
  prefetch(place + kPrefetchPlaces - 1);
  rest_ = room.first(view.copy(frame.offset, n_bytes, &buffer_).size() +
                     gather(room.subspan(n_bytes)));
  return {};
}

// Copies frames of mapped files to `room`, from the place after the block on, and adds
// them to it. Returns how many bytes these are.
std::size_t RecordReader::gather(MutableBytes room) {
  std::size_t n_bytes = 0;
  for (; block_end_place_ < places_.size(); ++block_end_place_) {
    const Place& place = places_[block_end_place_];
    const FileView* view = find(place.file);
    if (view == nullptr || view->mapping() == nullptr ||
        check_place(*view, place.frame) || place.frame.size() > room.size() - n_bytes) {
      break;
    }
    prefetch(block_end_place_ + kPrefetchPlaces);
    const std::uint8_t* frame = view->mapping()->bytes().data() + place.frame.offset;
    std::memcpy(room.data() + n_bytes, frame, place.frame.size());
    // The next block begins with a frame that was lost, and throws.
    if (view->mapping()->n_valid() < place.frame.end()) break;
    n_bytes += place.frame.size();
    lengths_.push_back(place.frame.length);
  }
  return n_bytes;
}

// What is wrong with the next frame of the block, which is that of `place`.
Fault RecordReader::check(const Place& place) const {
  const Frame& frame = place.frame;
  const std::uint64_t n_here = rest_.size();
  if (n_here < frame.size()) {
    const bool has_header = n_here >= kHeaderBytes;
    return {.code = has_header ? Errc::kTruncatedPayload : Errc::kTruncatedHeader,
            .offset = frame.offset,
            .found = has_header ? n_here - kHeaderBytes : n_here,
            .expected = has_header ? frame.length + kFooterBytes : kHeaderBytes};
  }
  std::uint64_t length = 0;
  const FileView* view = find(place.file);
  const std::uint64_t remaining = view ? view->size() - frame.offset : n_here;
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
  const Place& place = places_[next_++];
  const Frame& frame = place.frame;
  const Bytes bytes = rest_.first(std::min<std::uint64_t>(rest_.size(), frame.size()));
  Fault fault;
  if (n_read_ == n_intact_) [[unlikely]] {
    fault = check(place);
    ++n_intact_;
  }
  ++n_read_;
  rest_ = rest_.subspan(bytes.size());
  if (!fault) *payload = bytes.subspan(kHeaderBytes, frame.length);
  return fault;
}

Bytes RecordReader::next_mapped(std::size_t n_bytes_min) {
  if (next_ < block_end_place_) return {};
  const Place& place = places_[next_];
  if (place.frame.length < n_bytes_min) return {};
  const FileView& view = *open(place.file);
  if (view.mapping() == nullptr || check_place(view, place.frame)) return {};
  return view.mapping()->bytes().subspan(place.frame.offset, place.frame.size());
}

void RecordReader::pass_mapped() {
  const Place& place = places_[next_++];
  find(place.file)->check_valid(place.frame.offset, place.frame.size());
  prefetch(next_ + kPrefetchPlaces - 1);
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
