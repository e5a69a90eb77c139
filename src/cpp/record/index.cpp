#include "record/index.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <utility>

#include "crc32c/crc32c.h"

namespace fastrec {
namespace {

static_assert(std::endian::native == std::endian::little,
              "offsets are used as they lie in the index file");

constexpr std::uint8_t kMagic[8] = {'f', 'r', 'e', 'c', 'i', 'd', 'x', '1'};
constexpr std::size_t kSizeAt = 8, kMtimeAt = 16, kCountAt = 24;
constexpr std::size_t kOffsetsCrcAt = 40, kHeaderCrcAt = 44;
constexpr std::size_t kIndexHeaderBytes = 48;

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
  // The end of the frame before the break is not proven yet.
  if (offsets.size() > 1) offsets.pop_back();
  FrameWalk walk(recovery, &progress->cancelled);
  walk.start(view, offsets.back(), offsets.size() - 1);
  offsets.pop_back();
  for (Frame frame; walk.next(&frame);) offsets.push_back(frame.offset);
  offsets.push_back(view.size());
  return with_gaps(std::move(offsets), walk.take_gaps(), view.identity());
}

Index Index::with_gaps(std::vector<std::uint64_t> offsets, std::vector<Gap> gaps,
                       FileIdentity identity) {
  auto owner = std::make_shared<const std::vector<std::uint64_t>>(std::move(offsets));
  const std::span<const std::uint64_t> view(*owner);
  Index index(std::move(owner), view, identity);
  index.gaps_ = std::make_shared<const std::vector<Gap>>(std::move(gaps));
  return index;
}

Index Index::up_to_gap(std::size_t gap) const {
  std::vector<Gap> gaps(gaps_->begin(),
                        gaps_->begin() + static_cast<std::ptrdiff_t>(gap) + 1);
  gaps.back().end = identity_.size;
  const auto kept = offsets_.first(static_cast<std::size_t>(gaps.back().record));
  std::vector<std::uint64_t> offsets(kept.begin(), kept.end());
  offsets.push_back(identity_.size);
  return with_gaps(std::move(offsets), std::move(gaps), identity_);
}

Index Index::from_offsets(std::vector<std::uint64_t> offsets, FileIdentity identity,
                          const std::string& path) {
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != identity.size) {
    throw Error(Errc::kIndexMismatch,
                "the index does not begin and end where the file does", path);
  }
  auto owner = std::make_shared<const std::vector<std::uint64_t>>(std::move(offsets));
  const std::span<const std::uint64_t> view(*owner);
  return {std::move(owner), view, identity};
}

std::optional<Index> Index::load(const std::string& path,
                                 const FileIdentity& identity) {
  try {
    const File file(path);
    std::uint8_t header[kIndexHeaderBytes];
    if (file.read_at(0, header) != sizeof header) return std::nullopt;
    const std::uint32_t header_crc = crc32c({header, kHeaderCrcAt});
    if (std::memcmp(header, kMagic, sizeof kMagic) != 0 ||
        load_le<std::uint32_t>(header + kHeaderCrcAt) != header_crc ||
        load_le<std::uint64_t>(header + kSizeAt) != identity.size ||
        load_le<std::uint64_t>(header + kMtimeAt) !=
            static_cast<std::uint64_t>(identity.mtime_ns)) {
      return std::nullopt;
    }
    // The file says how long it is twice, and only the second can be believed.
    const auto count = load_le<std::uint64_t>(header + kCountAt);
    const std::uint64_t size = file.identity().size;
    if (size < kIndexHeaderBytes + sizeof(std::uint64_t)) return std::nullopt;
    const std::uint64_t n_offset_bytes = size - kIndexHeaderBytes;
    if (n_offset_bytes % sizeof(std::uint64_t) != 0 ||
        count != n_offset_bytes / sizeof(std::uint64_t) - 1) {
      return std::nullopt;
    }

    auto mapping = std::make_shared<const Mapping>(file);
    const Bytes stored = mapping->bytes().subspan(kIndexHeaderBytes);
    if (crc32c(stored) != load_le<std::uint32_t>(header + kOffsetsCrcAt)) {
      return std::nullopt;
    }
    const std::span<const std::uint64_t> offsets(
        reinterpret_cast<const std::uint64_t*>(stored.data()),
        static_cast<std::size_t>(count) + 1);
    if (offsets.front() != 0 || offsets.back() != identity.size) return std::nullopt;

    // Small indexes are copied: 100,000 files must not need 100,000 mappings.
    constexpr std::size_t kMappedBytes = std::size_t{1} << 20;
    std::vector<std::uint64_t> copy;
    if (stored.size() < kMappedBytes) copy.assign(offsets.begin(), offsets.end());
    // Pages that are lost later become zeros, which no frame begins and ends at.
    if (mapping->n_kept() < size) return std::nullopt;
    if (!copy.empty()) return from_offsets(std::move(copy), identity, path);
    return Index(std::move(mapping), offsets, identity);
  } catch (const IoError&) {
    return std::nullopt;  // no index, or none that this user may read: build one
  }
}

void Index::save(const std::string& path) const {
  std::uint8_t header[kIndexHeaderBytes] = {};
  std::memcpy(header, kMagic, sizeof kMagic);
  store_le(header + kSizeAt, identity_.size);
  store_le(header + kMtimeAt, static_cast<std::uint64_t>(identity_.mtime_ns));
  store_le(header + kCountAt, size());
  store_le(header + kOffsetsCrcAt, crc32c(bytes_of(offsets_)));
  store_le(header + kHeaderCrcAt, crc32c({header, kHeaderCrcAt}));

  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw IoError(errno, path);
  errno = 0;
  const Bytes offsets = bytes_of(offsets_);
  const bool is_written =
      std::fwrite(header, 1, sizeof header, file) == sizeof header &&
      std::fwrite(offsets.data(), 1, offsets.size(), file) == offsets.size();
  const int write_errno = errno;
  if (std::fclose(file) != 0) throw IoError(errno, path);
  if (!is_written) throw IoError(write_errno, path);
}

// Where record `i` ends in a file with gaps.
std::uint64_t Index::end_before_gap(std::uint64_t i) const noexcept {
  const auto gap = std::lower_bound(
      gaps_->begin(), gaps_->end(), i + 1,
      [](const Gap& a, std::uint64_t record) { return a.record < record; });
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
