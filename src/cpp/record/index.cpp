#include "record/index.h"

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

Index Index::build(const FileView& view, unsigned n_threads, ScanProgress* progress) {
  ScanResult result = scan(view, n_threads, progress);
  if (progress->cancelled.load()) throw ScanCancelled();
  if (result.fault) throw framing_error(view, result.fault, result.offsets.size() - 1);
  return from_offsets(std::move(result.offsets), view.identity(), view.name());
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
    if (stored.size() < kMappedBytes) {
      return from_offsets({offsets.begin(), offsets.end()}, identity, path);
    }
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

Frame Index::frame(std::uint64_t i) const noexcept {
  const std::uint64_t begin = offsets_[i], end = offsets_[i + 1];
  const bool is_possible = end >= begin && end - begin >= kFrameBytes;
  return {begin, is_possible ? end - begin - kFrameBytes
                             : std::numeric_limits<std::uint64_t>::max()};
}

Error framing_error(const FileView& view, Fault fault, std::uint64_t n_records) {
  std::string reason = describe(fault);
  if (fault.offset == 0 &&
      (fault.code == Errc::kLengthCrc || fault.code == Errc::kTruncatedHeader)) {
    Buffer buffer;
    const Bytes beginning = view.copy(0, kRecognizeBytes, &buffer);
    reason = describe_foreign(recognize(beginning), &fault);
  }
  Error error(fault.code, std::move(reason), view.name());
  error.record = n_records;
  error.offset = fault.offset;
  return error;
}

}  // namespace fastrec
