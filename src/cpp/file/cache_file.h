// CacheFile: content that was derived from one version of a file <-> a file of a cache.
//
//   0         8            16          24             32            36           40
//   +---------+------------+-----------+--------------+-------------+------------+
//   |  kind   | file size  | mtime, ns | content size | content crc | header crc |
//   | 8 bytes | u64 le     | i64 le    | u64 le       | u32 le      | u32 le     |
//   +---------+------------+-----------+--------------+-------------+------------+
//   followed by the content, to the end of the file.
//
// Size and mtime are those of the file that the content was derived from. Both
// checksums are CRC-32C: of the content, and of the 36 bytes before the second.
//
// Invariants
//   * A cache file that is cut, longer, altered, of another kind or of another version
//     is not loaded, and nothing is allocated for a size that only its header states.
//   * Only a regular file is loaded. A FIFO is not waited for, a link is not followed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "file/file.h"

namespace fastrec {

// The content of a cache file, which `owner` keeps in memory. It is aligned to 8 bytes.
struct CacheContent {
  std::shared_ptr<const void> owner;
  Bytes bytes;
};

// Whether large content stays in the file, where processes share its pages. Lost pages
// become zeros (file/guard.h), so the user must check what it reads.
enum class CacheMemory : std::uint8_t { kCopied, kMappedIfLarge };

// The content of the cache file at `path`; nothing if it cannot be used, whatever the
// reason. `kind` has 8 characters.
std::optional<CacheContent> load_cache_file(const std::string& path,
                                            std::string_view kind,
                                            const FileIdentity& identity,
                                            CacheMemory memory);

// Writes a file that load_cache_file() reads. The caller makes it appear under its name
// when it is complete. Throws IoError.
void save_cache_file(const std::string& path, std::string_view kind,
                     const FileIdentity& identity, Bytes content);

}  // namespace fastrec
