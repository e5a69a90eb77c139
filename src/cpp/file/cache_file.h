// CacheFile: content derived from one version of a file <-> a file in a cache.
//
//   0         8            16          24             32            36           40
//   +---------+------------+-----------+--------------+-------------+------------+
//   |  kind   | file size  | mtime, ns | content size | content crc | header crc |
//   | 8 bytes | u64 le     | i64 le    | u64 le       | u32 le      | u32 le     |
//   +---------+------------+-----------+--------------+-------------+------------+
//   followed by the content, to the end of the file.
//
// Size and mtime identify the source file. The checksums are CRC-32C of the content,
// and of the 36 header bytes before the header crc.
//
// Invariants
//   * A cache file that is truncated, extended or altered, or that has another kind or
//     source version, is not loaded. No memory is allocated for an unverified size.
//   * Only regular files are loaded: no FIFOs, no symbolic links.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "file/file.h"

namespace fastrec {

// The content of a cache file, aligned to 8 bytes. `owner` keeps it alive.
struct CacheContent {
  std::shared_ptr<const void> owner;
  Bytes bytes;
};

// Whether to map large content, so that processes share its pages. Lost pages become
// zeros (file/guard.h), so the caller must check what it reads.
enum class CacheMemory : std::uint8_t { kCopied, kMappedIfLarge };

// The content of a whole file; nothing if it was truncated meanwhile. Throws IoError.
std::optional<CacheContent> contents_of(const File& file, CacheMemory memory);

// Loads the cache file at `path`. Returns nothing if it cannot be used, for any reason.
// `kind` has 8 characters.
std::optional<CacheContent> load_cache_file(const std::string& path,
                                            std::string_view kind,
                                            const FileIdentity& identity);

// Writes a cache file. Not atomic: the caller writes to a temporary path and renames
// it. Throws IoError.
void save_cache_file(const std::string& path, std::string_view kind,
                     const FileIdentity& identity, Bytes content);

}  // namespace fastrec
