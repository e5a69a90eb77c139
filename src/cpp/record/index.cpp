#include "record/index.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/interrupt.h"

namespace fastrec {

Index Index::packed(std::span<const std::uint64_t> offsets,
                    const std::span<const std::uint32_t>* payload_crcs,
                    std::vector<SkippedSpan> gaps, FileIdentity identity,
                    Content content) {
  Index index(identity, content);
  Packed packed(offsets);
  index.n_records_ = offsets.size() - 1;
  index.width_ = static_cast<std::uint8_t>(packed.width);
  std::vector<std::uint64_t>& words = packed.words;
  if (payload_crcs != nullptr) {
    index.has_payload_crcs_ = true;
    const std::size_t n_words = words.size();
    words.resize(n_words + crc_bytes(index.n_records_) / 8);
    std::ranges::copy(
        std::as_bytes(*payload_crcs),
        std::as_writable_bytes(std::span(words).subspan(n_words)).begin());
  }
  auto owner = std::make_shared<const std::vector<std::uint64_t>>(std::move(words));
  index.bytes_ = reinterpret_cast<const std::uint8_t*>(owner->data());
  index.owner_ = std::move(owner);
  if (!gaps.empty()) {
    index.gaps_ = std::make_shared<const std::vector<SkippedSpan>>(std::move(gaps));
  }
  return index;
}

Index Index::build(const FileView& view, unsigned n_threads, ScanProgress* progress,
                   Recovery recovery) {
  ScanResult result = scan(view, n_threads, progress);
  progress->check_cancelled();
  std::vector<std::uint64_t>& offsets = result.offsets;
  if (!result.fault) return from_offsets(offsets, view.identity(), view.name());
  if (recovery == Recovery::kNone) {
    throw framing_error(view, result.fault, offsets.size() - 1);
  }
  // The end of the frame before the break is not verified yet.
  if (offsets.size() > 1) offsets.pop_back();
  FrameWalk walk(recovery, progress);
  walk.start(view, offsets.back(), offsets.size() - 1);
  offsets.pop_back();
  for (Frame frame; walk.next(&frame);) offsets.push_back(frame.offset);
  offsets.push_back(view.size());
  return packed(offsets, nullptr, walk.take_gaps(), view.identity(),
                Content::kTfrecord);
}

Index Index::from_offsets(std::span<const std::uint64_t> offsets, FileIdentity identity,
                          const std::string& path) {
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != identity.size) {
    throw Error(Errc::kIndexMismatch,
                "the index does not match the file: its first or last offset is wrong",
                path);
  }
  return packed(offsets, nullptr, {}, identity, Content::kTfrecord);
}

Index Index::of_stream(std::span<const std::uint64_t> offsets,
                       std::span<const std::uint32_t> payload_crcs,
                       std::vector<SkippedSpan> gaps, FileIdentity identity,
                       Content content) {
  return packed(offsets, &payload_crcs, std::move(gaps), identity, content);
}

Index Index::with_mtime(std::int64_t mtime_ns) const {
  Index other = *this;
  other.identity_.mtime_ns = mtime_ns;
  return other;
}

std::vector<std::uint64_t> Index::offsets() const {
  std::vector<std::uint64_t> offsets(n_records_ + 1);
  const PackedOffsets packed = packed_offsets();
  for (std::uint64_t i = 0; i < offsets.size(); ++i) offsets[i] = packed[i];
  return offsets;
}

std::uint32_t Index::payload_crc(std::uint64_t i) const noexcept {
  const std::uint64_t begin = *PackedOffsets::size_of(n_records_, width_);
  return load_le<std::uint32_t>(bytes_ + begin + 4 * i);
}

// Whether entry `i` is a frame of the file.
bool Index::has_frame(const FileView& view, std::uint64_t i) const {
  const Frame expected = frame(i);
  Frame found;
  return expected.offset < view.size() &&
         !FrameCursor(&view, kHeaderBytes).read(expected.offset, &found) &&
         found.length == expected.length;
}

bool Index::is_plausible(const FileView& view) const {
  constexpr std::uint64_t kProbes = 4;
  if (content_ != Content::kTfrecord) return true;
  const std::uint64_t n = std::min(kProbes, n_records_);
  for (std::uint64_t i = 0; i < n; ++i) {
    if (!has_frame(view, n_records_ - 1 - n_records_ / n * i)) return false;
  }
  return true;
}

bool Index::surrounds(const FileView& view, std::uint64_t record) const {
  return n_records_ > 1 && (record == 0 || has_frame(view, record - 1)) &&
         (record + 1 == n_records_ || has_frame(view, record + 1));
}

bool Index::is_stale(const FileView& view) const {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPatience(50);
  constexpr unsigned kFramesPerCheck = 1024;
  if (gaps_) return false;  // built by this process
  // A chain of frames from the beginning, or to the end of the file, disproves the index
  // if one of them is not an entry. Between two gaps, frames may be those of a TFRecord
  // file in a damaged record.
  FrameWalk walk(Recovery::kResync);
  walk.start(view);
  std::uint64_t entry = 0, end = 0, requested_end = 0, n_frames = 0;
  bool is_from_begin = true, has_other = false;  // of the current chain
  Clock::time_point next_check = Clock::now() + kPatience;
  for (Frame found; walk.next(&found); end = found.end()) {
    if (++n_frames % kFramesPerCheck == 0 && Clock::now() > next_check) {
      check_interrupt();
      next_check = Clock::now() + kPatience;
    }
    if (view.requests() != nullptr && requested_end <= found.end()) {
      const std::uint64_t ahead_bytes = view.requests()->ahead_bytes();
      view.read_ahead(found.end(), ahead_bytes);
      requested_end = found.end() + ahead_bytes / 2;
    }
    if (found.offset != end) is_from_begin = has_other = false;
    while (entry < n_records_ && offset(entry) < found.offset) ++entry;
    const Frame expected = entry < n_records_ ? frame(entry) : Frame{};
    if (entry == n_records_ || expected.offset != found.offset ||
        expected.length != found.length) {
      if (is_from_begin) return true;
      has_other = true;
    }
  }
  return has_other && end == view.size();
}

// The end of record `i` in a file with gaps.
std::uint64_t Index::end_before_gap(std::uint64_t i) const noexcept {
  const auto gap = std::lower_bound(
      gaps_->begin(), gaps_->end(), i + 1,
      [](const SkippedSpan& a, std::uint64_t record) { return a.record < record; });
  return gap != gaps_->end() && gap->record == i + 1 ? gap->begin : offset(i + 1);
}

Frame Index::frame(std::uint64_t i) const noexcept {
  const std::uint64_t begin = offset(i);
  const std::uint64_t end = gaps_ ? end_before_gap(i) : offset(i + 1);
  const bool is_possible = end >= begin && end - begin >= kFrameBytes;
  return {begin, is_possible ? end - begin - kFrameBytes
                             : std::numeric_limits<std::uint64_t>::max()};
}

}  // namespace fastrec
