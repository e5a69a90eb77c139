#include "record/reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include "file/guard.h"

namespace fastrec {
namespace {

// Block sizes. A copy of mapped or fetched bytes should stay in the L2 cache; pread()
// reads more to amortize the system call.
constexpr std::uint64_t kMappedBlockBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kPreadBlockBytes = std::uint64_t{512} << 10;

// Scattered records are copied together, up to this size. In mapped files, their cache
// misses overlap: 260 instead of 440 ns for shuffled records of 855 bytes, and 125
// instead of 340 ns for 234 bytes. 64 KiB is equally fast. Those of remote files share
// the lock of their ranges.
constexpr std::uint64_t kGatheredBytes = std::uint64_t{16} << 10;

// The number of files without a descriptor that each reader caches.
constexpr std::size_t kMaxMapped = 256;

// The beginning of each mapped run is prefetched this many runs ahead; 4 to 16
// are equally fast. The hardware prefetcher loads the rest.
constexpr std::size_t kPrefetchRuns = 8;
constexpr std::uint64_t kPrefetchBytes = 1024;

// Small mapped frames are prefetched this far ahead; 4 to 12 KiB are equally fast.
constexpr std::uint64_t kPrefetchAheadBytes = std::uint64_t{6} << 10;

// How many runs are requested to find out whether the files are in memory.
constexpr std::size_t kProbes = 4;

// A longer run of adjacent records is a sequential scan.
constexpr std::uint64_t kScanBytes = std::uint64_t{1} << 20;

}  // namespace

RecordReader::RecordReader(std::shared_ptr<FileTable> files)
    : files_(std::move(files)),
      mapped_(std::bit_ceil(std::min(files_->size(), kMaxMapped))),
      payload_bytes_max_(std::min(kMaxPayloadBytes, files_->record_bytes_max())) {}

std::uint64_t RecordReader::block_bytes(const FileView& view) noexcept {
  return view.mapping() != nullptr ? kMappedBlockBytes : kPreadBlockBytes;
}

void RecordReader::start(const FrameRuns& frames, const std::uint8_t* bytes) {
  frames_ = &frames;
  places_ = PlaceCursor(&frames);
  n_returned_ = n_loaded_ = run_ = n_in_run_ = 0;
  next_offset_ = frames.runs.empty() ? 0 : frames.runs.front().begin;
  is_short_ = false;
  block_ = {};
  if (bytes != nullptr) {
    std::uint64_t n_bytes = 0;
    for (const FrameRun& run : frames.runs) n_bytes += run.n_bytes();
    rest_ = {bytes, n_bytes};
    n_loaded_ = frames.size();
    return;
  }
  install_guard();
  request_scattered();
  for (std::size_t run = 0; run < kPrefetchRuns; ++run) prefetch(run);
}

const FileView* RecordReader::find(std::size_t file) const noexcept {
  const OpenFile& mapped = mapped_[file & (mapped_.size() - 1)];
  if (mapped.view && mapped.file == file) return mapped.view.get();
  if (read_.view && read_.file == file) return read_.view.get();
  return nullptr;
}

const FileView* RecordReader::open(std::size_t file) {
  if (const FileView* view = find(file)) return view;
  std::shared_ptr<const FileView> view = files_->open(file);
  OpenFile& kept =
      view->has_descriptor() ? read_ : mapped_[file & (mapped_.size() - 1)];
  kept = {file, std::move(view)};
  is_remote_ = is_remote_ || kept.view->is_remote();
  return kept.view.get();
}

void RecordReader::prefetch(std::size_t run) const noexcept {
  if (run >= frames_->runs.size()) return;
  const FrameRun& next = frames_->runs[run];
  if (const FileView* view = find(next.file)) {
    view->prefetch(next.begin, std::min(next.n_bytes(), kPrefetchBytes));
  }
}

// Requests scattered runs ahead, so that the disk or the store reads many of them in
// parallel.
void RecordReader::request_scattered() {
  if (frames_->size() < 2) return;
  if (files_->requests() != nullptr) return files_->will_need(frames_->ranges());
  const std::uint64_t n_disk_reads = count_disk_reads();
  const bool is_warm = n_disk_reads == n_disk_reads_ && !is_remote_;
  n_disk_reads_ = n_disk_reads;
  if (is_warm) return;

  std::size_t n_requested = 0;
  for (const FrameRun& run : frames_->runs) {
    try {
      const FileView* view = open(run.file);
      // The readahead of the kernel is better for a sequential scan.
      const bool is_scan = run.n_bytes() > kScanBytes || run.count == frames_->size();
      if (is_scan) continue;
      view->read_ahead(run.begin, run.n_bytes());
    } catch (const std::exception&) {
      continue;  // next_block() throws it again if it reads this run
    }
    ++n_requested;
    if (n_requested == kProbes && !is_remote_ && count_disk_reads() == n_disk_reads) {
      return;
    }
  }
}

// A stale or forged index may point anywhere.
Fault RecordReader::check_place(const FileView& view, const Frame& frame) const {
  if (frame.offset > view.size() || view.size() - frame.offset < kFrameBytes ||
      frame.length > view.size() - frame.offset - kFrameBytes) {
    return {.code = Errc::kIndexPastEnd, .offset = frame.offset, .found = view.size()};
  }
  if (frame.length > payload_bytes_max_) {
    return {.code = Errc::kRecordTooLarge,
            .offset = frame.offset,
            .found = frame.length,
            .expected = payload_bytes_max_};
  }
  return {};
}

// Notes that the next frames are loaded. They end in the current run.
void RecordReader::move(std::size_t n_frames, std::uint64_t n_bytes) {
  n_loaded_ += n_frames;
  n_in_run_ += n_frames;
  next_offset_ += n_bytes;
  if (n_in_run_ < frames_->runs[run_].count) return;
  n_in_run_ = 0;
  if (++run_ < frames_->runs.size()) next_offset_ = frames_->runs[run_].begin;
}

// Copies the next frames to the buffer: those of one run, and if these are few, also
// other runs.
Fault RecordReader::load_block() {
  const FrameRun& run = frames_->runs[run_];
  const FileView& view = *open(run.file);
  const Frame first = next_frame();
  rest_ = {};
  is_short_ = false;
  if (Fault fault = check_place(view, first)) {
    move(1, first.size());
    return fault;
  }
  const auto lengths =
      std::span(frames_->lengths).subspan(n_loaded_, run.count - n_in_run_);
  std::uint64_t n_bytes = first.size();
  const std::uint64_t bytes_max =
      std::min(std::max(block_bytes(view), n_bytes), view.size() - first.offset);
  std::size_t n = 1;
  while (n < lengths.size() && lengths[n] <= payload_bytes_max_ &&
         lengths[n] + kFrameBytes <= bytes_max - n_bytes) {
    n_bytes += lengths[n++] + kFrameBytes;
  }
  if (view.mapping() == nullptr) {
    RangeRequests* requests = view.requests();
    if (requests != nullptr && n_in_run_ == 0 && gather_ranges(requests)) return {};
    // gather_ranges() may have closed `view`.
    rest_ = open(run.file)->copy(first.offset, n_bytes, &buffer_);
    // If the file was truncated after it was opened, check() returns a fault.
    is_short_ = rest_.size() < n_bytes;
    move(n, n_bytes);
    return {};
  }
  const MutableBytes room = buffer_.room(std::max(n_bytes, kGatheredBytes));
  prefetch(run_ + kPrefetchRuns);
  const std::size_t n_copied = view.copy(first.offset, n_bytes, &buffer_).size();
  move(n, n_bytes);
  rest_ = room.first(n_copied + (n_in_run_ == 0 ? gather(room.subspan(n_bytes)) : 0));
  return {};
}

// Extends the block by copying runs of mapped files to `room`. Returns their size in
// bytes.
std::size_t RecordReader::gather(MutableBytes room) {
  std::size_t n_bytes = 0;
  while (run_ < frames_->runs.size()) {
    const FrameRun& run = frames_->runs[run_];
    const std::uint64_t n_here = run.n_bytes();
    const FileView* view = find(run.file);
    if (view == nullptr || view->mapping() == nullptr ||
        n_here > room.size() - n_bytes || run.begin > view->size() ||
        n_here > view->size() - run.begin ||
        !std::ranges::all_of(
            std::span(frames_->lengths).subspan(n_loaded_, run.count),
            [this](std::uint64_t length) { return length <= payload_bytes_max_; })) {
      break;
    }
    prefetch(run_ + kPrefetchRuns);
    std::memcpy(room.data() + n_bytes, view->mapping()->bytes().data() + run.begin,
                n_here);
    // A lost frame starts the next block, which throws.
    if (view->mapping()->n_valid() < run.end) break;
    n_bytes += n_here;
    move(run.count, n_here);
  }
  return n_bytes;
}

// Loads the next runs if they are small and fetched from a remote store. Returns false
// if the next one is not.
bool RecordReader::gather_ranges(RangeRequests* requests) {
  std::vector<FileRange> ranges;
  std::uint64_t n_bytes = 0;
  for (std::size_t run = run_, n = n_loaded_; run < frames_->runs.size(); ++run) {
    const FrameRun& next = frames_->runs[run];
    const FileView* view = nullptr;
    try {
      view = open(next.file);
    } catch (const std::exception&) {
      break;  // load_block() throws it again if it reads this run
    }
    const auto lengths = std::span(frames_->lengths).subspan(n, next.count);
    n_bytes += next.n_bytes();
    if (view->requests() == nullptr || n_bytes > kMappedBlockBytes ||
        next.begin > next.end || next.end > view->size() ||
        std::ranges::max(lengths) > payload_bytes_max_) {
      break;
    }
    ranges.push_back(next);
    n += next.count;
  }
  if (ranges.size() < 2) return false;
  const MutableBytes room = buffer_.room(kMappedBlockBytes);
  n_bytes = 0;
  ranges.resize(requests->copy(ranges, room));
  for (const FileRange& range : ranges) {
    n_bytes += range.n_bytes();
    move(frames_->runs[run_].count, range.n_bytes());
  }
  rest_ = room.first(n_bytes);
  return !ranges.empty();
}

// Verifies the next frame in memory, which belongs to `place`.
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

// Decides whether a fault at a place is damage to the file, or the place is wrong.
Fault RecordReader::judged(const Fault& fault, const Place& place) {
  // A payload with a wrong checksum has a header, which is where the index says.
  if (place.indexes == nullptr || fault.code == Errc::kPayloadCrc ||
      !place.indexes->is_stale(place.file, place.record, *open(place.file))) {
    return fault;
  }
  return {.code = Errc::kIndexMismatch, .offset = place.frame.offset};
}

Fault RecordReader::next_block(VerifiedBlock* block) {
  *block = {};
  if (n_returned_ == n_loaded_) {
    if (Fault fault = load_block()) return judged(fault, places_.at(n_returned_++));
  }
  const auto lengths =
      std::span(frames_->lengths).subspan(n_returned_, n_loaded_ - n_returned_);
  std::size_t n = is_short_ ? 0 : kernel_.count_intact(rest_.data(), lengths);
  Fault fault;
  if (n == 0) [[unlikely]] {
    const Place place = places_.at(n_returned_);
    fault = check(place);
    if (fault) fault = judged(fault, place);
    n = 1;
  }
  n_returned_ += n;
  if (!fault) *block = {rest_.data(), lengths.first(n)};
  std::uint64_t n_bytes = n * kFrameBytes;
  for (const std::uint64_t length : lengths.first(n)) n_bytes += length;
  rest_ = rest_.subspan(std::min<std::uint64_t>(rest_.size(), n_bytes));
  return fault;
}

Bytes RecordReader::next_mapped(std::size_t n_bytes_min) {
  if (n_returned_ != n_loaded_ || next_frame().length < n_bytes_min) return {};
  const FrameRun& run = frames_->runs[run_];
  const FileView& view = *open(run.file);
  const Frame frame = next_frame();
  if (view.mapping() == nullptr || check_place(view, frame)) return {};
  if (frame.size() <= kGatheredBytes) {
    if (run.count == 1) return {};  // next_block() gathers it
    view.prefetch(frame.offset + kPrefetchAheadBytes, frame.size());
  }
  return view.mapping()->bytes().subspan(frame.offset, frame.size());
}

void RecordReader::skip_mapped() {
  const FileView& view = *find(frames_->runs[run_].file);
  const Frame frame = next_frame();
  move(1, frame.size());
  n_returned_ = n_loaded_;
  view.check_valid(frame.offset, frame.size());
  if (frame.size() >= FileView::kReleasedBytes) {
    view.release(frame.offset, frame.size());
  }
  prefetch(run_ + kPrefetchRuns - 1);
}

Bytes RecordReader::next() {
  Bytes payload;
  if (const Fault fault = next(&payload)) {
    throw record_error(fault, describe(fault), places_.at(n_returned_ - 1), *files_);
  }
  return payload;
}

void copy_frames(std::shared_ptr<FileTable> files, const FrameRuns& frames,
                 std::span<const std::int64_t> begins, MutableBytes into) {
  if (begins.size() != frames.size()) {
    throw std::invalid_argument("begins must have one entry per record");
  }
  for (std::size_t i = 0; i < frames.size(); ++i) {
    // A negative number wraps to a large one.
    const auto begin = static_cast<std::uint64_t>(begins[i]);
    if (begin > into.size() || frames.lengths[i] + kFrameBytes > into.size() - begin) {
      throw std::out_of_range("`into` is too small for the frames");
    }
  }
  const std::int64_t* begin = begins.data();
  read_each(std::move(files), frames, [&](Bytes payload) {
    std::copy_n(payload.data() - kHeaderBytes, payload.size() + kFrameBytes,
                into.data() + *begin++);
  });
}

std::vector<std::uint32_t> stored_payload_crcs(const FrameRuns& frames,
                                               FileTable* files) {
  std::vector<std::uint32_t> checksums;
  Buffer buffer;
  PlaceCursor places(&frames);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const Place place = places.at(i);
    const Index& index = (*place.indexes)[place.file];
    if (index.has_payload_crcs()) {
      checksums.push_back(index.payload_crc(place.record));
      continue;
    }
    const std::shared_ptr<const FileView> view = files->open(place.file);
    const Bytes footer =
        view->copy(place.frame.payload() + place.frame.length, kFooterBytes, &buffer);
    if (footer.size() < kFooterBytes) {
      const Fault fault{.code = Errc::kIndexPastEnd,
                        .offset = place.frame.offset,
                        .found = view->size()};
      throw record_error(fault, describe(fault), place, *files);
    }
    checksums.push_back(load_le<std::uint32_t>(footer.data()));
  }
  return checksums;
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
