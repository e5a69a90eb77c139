#include "record/index.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "file/cache_file.h"

namespace fastrec {
namespace {

constexpr std::string_view kKind = "frecidx2";

Bytes bytes_of(std::span<const std::uint64_t> offsets) {
  return {reinterpret_cast<const std::uint8_t*>(offsets.data()), offsets.size_bytes()};
}

}  // namespace

Index::Index(std::shared_ptr<const void> owner, std::span<const std::uint64_t> offsets,
             FileIdentity identity)
    : owner_(std::move(owner)), offsets_(offsets), identity_(identity) {}

Index Index::build(const FileView& view, unsigned n_threads, ScanProgress* progress,
                   Recovery recovery) {
  ScanResult result = scan(view, n_threads, progress);
  if (progress->cancelled.load()) throw ScanCancelled();
  std::vector<std::uint64_t>& offsets = result.offsets;
  if (!result.fault) {
    return from_offsets(std::move(offsets), view.identity(), view.name());
  }
  if (recovery == Recovery::kNone) {
    throw framing_error(view, result.fault, offsets.size() - 1);
  }
  // The end of the frame before the break is not verified yet.
  if (offsets.size() > 1) offsets.pop_back();
  FrameWalk walk(recovery, &progress->cancelled);
  walk.start(view, offsets.back(), offsets.size() - 1);
  offsets.pop_back();
  for (Frame frame; walk.next(&frame);) offsets.push_back(frame.offset);
  offsets.push_back(view.size());
  return with_gaps(std::move(offsets), walk.take_gaps(), view.identity());
}

Index Index::with_gaps(std::vector<std::uint64_t> offsets,
                       std::vector<SkippedSpan> gaps, FileIdentity identity) {
  auto owner = std::make_shared<const std::vector<std::uint64_t>>(std::move(offsets));
  const std::span<const std::uint64_t> view(*owner);
  Index index(std::move(owner), view, identity);
  index.gaps_ = std::make_shared<const std::vector<SkippedSpan>>(std::move(gaps));
  return index;
}

Index Index::from_offsets(std::vector<std::uint64_t> offsets, FileIdentity identity,
                          const std::string& path) {
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != identity.size) {
    throw Error(Errc::kIndexMismatch,
                "the index does not match the file: its first or last offset is wrong",
                path);
  }
  auto owner = std::make_shared<const std::vector<std::uint64_t>>(std::move(offsets));
  const std::span<const std::uint64_t> view(*owner);
  return {std::move(owner), view, identity};
}

std::optional<Index> Index::load(const std::string& path,
                                 const FileIdentity& identity) {
  auto content = load_cache_file(path, kKind, identity, CacheMemory::kMappedIfLarge);
  if (!content || content->bytes.empty() ||
      content->bytes.size() % sizeof(std::uint64_t) != 0) {
    return std::nullopt;
  }
  const std::span<const std::uint64_t> offsets(
      reinterpret_cast<const std::uint64_t*>(content->bytes.data()),
      content->bytes.size() / sizeof(std::uint64_t));
  if (offsets.front() != 0 || offsets.back() != identity.size) return std::nullopt;
  // Lost pages become zeros, and a frame from 0 to 0 is invalid.
  return Index(std::move(content->owner), offsets, identity);
}

void Index::save(const std::string& path) const {
  save_cache_file(path, kKind, identity_, bytes_of(offsets_));
}

// The end of record `i` in a file with gaps.
std::uint64_t Index::end_before_gap(std::uint64_t i) const noexcept {
  const auto gap = std::lower_bound(
      gaps_->begin(), gaps_->end(), i + 1,
      [](const SkippedSpan& a, std::uint64_t record) { return a.record < record; });
  return gap != gaps_->end() && gap->record == i + 1 ? gap->begin : offsets_[i + 1];
}

Frame Index::frame(std::uint64_t i) const noexcept {
  const std::uint64_t begin = offsets_[i];
  const std::uint64_t end = gaps_ ? end_before_gap(i) : offsets_[i + 1];
  const bool is_possible = end >= begin && end - begin >= kFrameBytes;
  return {begin, is_possible ? end - begin - kFrameBytes
                             : std::numeric_limits<std::uint64_t>::max()};
}

}  // namespace fastrec
