#include "file/cache_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "crc32c/crc32c.h"
#include "file/mapping.h"

namespace fastrec {
namespace {

constexpr std::size_t kKindBytes = 8, kSizeAt = 8, kMtimeAt = 16;
constexpr std::size_t kContentSizeAt = 24, kContentCrcAt = 32, kHeaderCrcAt = 36;
constexpr std::size_t kHeaderBytes = 40;

// Smaller content is copied, so that 100,000 files do not need 100,000 mappings.
constexpr std::size_t kMappedBytes = std::size_t{1} << 20;

using Header = std::array<std::uint8_t, kHeaderBytes>;

Header header_of(std::string_view kind, const FileIdentity& identity,
                 std::uint64_t content_size, std::uint32_t content_crc) {
  Header header = {};
  std::copy_n(kind.begin(), std::min(kind.size(), kKindBytes), header.begin());
  store_le(header.data() + kSizeAt, identity.size);
  store_le(header.data() + kMtimeAt, static_cast<std::uint64_t>(identity.mtime_ns));
  store_le(header.data() + kContentSizeAt, content_size);
  store_le(header.data() + kContentCrcAt, content_crc);
  store_le(header.data() + kHeaderCrcAt, crc32c({header.data(), kHeaderCrcAt}));
  return header;
}

}  // namespace

std::optional<CacheContent> contents_of(const File& file, CacheMemory memory) {
  const auto size = static_cast<std::size_t>(file.identity().size);
  if (memory == CacheMemory::kMappedIfLarge && size >= kMappedBytes) {
    const auto mapping = std::make_shared<const Mapping>(file);
    return CacheContent{mapping, mapping->bytes()};
  }
  // A vector of words, for the alignment.
  const auto words =
      std::make_shared<std::vector<std::uint64_t>>(size / sizeof(std::uint64_t) + 1);
  auto* bytes = reinterpret_cast<std::uint8_t*>(words->data());
  if (file.read_at(0, {bytes, size}) != size) return std::nullopt;
  return CacheContent{words, {bytes, size}};
}

std::optional<CacheContent> load_cache_file(const std::string& path,
                                            std::string_view kind,
                                            const FileIdentity& identity) {
  try {
    const File file(path, File::Links::kRefused);
    Header header;
    if (file.read_at(0, header) != header.size()) return std::nullopt;
    const std::uint64_t file_size = file.identity().size;
    if (file_size < kHeaderBytes) return std::nullopt;
    // Trusts the size of the file, not the size in the header.
    const auto content_crc = load_le<std::uint32_t>(header.data() + kContentCrcAt);
    if (header != header_of(kind, identity, file_size - kHeaderBytes, content_crc)) {
      return std::nullopt;
    }
    auto content = contents_of(file, CacheMemory::kCopied);
    if (!content) return std::nullopt;
    content->bytes = content->bytes.subspan(kHeaderBytes);
    if (crc32c(content->bytes) != content_crc) return std::nullopt;
    return content;
  } catch (const IoError&) {
    return std::nullopt;  // absent or unreadable: the caller derives the content again
  }
}

void save_cache_file(const std::string& path, std::string_view kind,
                     const FileIdentity& identity, Bytes content) {
  const Header header = header_of(kind, identity, content.size(), crc32c(content));
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw IoError(errno, path);
  errno = 0;
  const bool is_written =
      std::fwrite(header.data(), 1, header.size(), file) == header.size() &&
      std::fwrite(content.data(), 1, content.size(), file) == content.size();
  const int write_errno = errno;
  if (std::fclose(file) != 0) throw IoError(errno, path);
  if (!is_written) throw IoError(write_errno, path);
}

}  // namespace fastrec
