// IndexFile: the indexes of many files <-> one file.
//
//   0          8           16            24           32           36           40
//   +----------+-----------+-------------+------------+------------+------------+
//   | kind     | number of | size of the | size of    | crc of the | header crc |
//   | 8 bytes  | files     | names       | this file  | entries    | u32 le     |
//   |          | u64 le    | u64 le      | u64 le     | and names  |            |
//   +----------+-----------+-------------+------------+------------+------------+
//   | entries, 32 bytes each, sorted by name | names, padded | blocks            |
//   +----------------------------------------+---------------+-------------------+
//
//   entry: size u64, mtime i64 (ns), number of records u64, crc of the block u32,
//          size of the name u16, width u8, flags u8
//   flags: content (0 plain, 1 GZIP, 2 ZLIB), and 128 if there are payload checksums
//   block: record/packed_offsets.h, then any payload checksums, padded to 8 bytes
//
// A name is any text that identifies the file to the caller. Checksums are CRC-32C; that
// of the header covers the 36 bytes before it.
//
// Invariants
//   * A file that is truncated or extended, or whose header, entries or names were
//     altered, is not loaded. An altered block is not used; the others are.
//   * Sizes are checked against the size of the file before they are used.
//   * Only regular files are loaded: no FIFOs, no symbolic links.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "file/file.h"
#include "record/index.h"

namespace fastrec {

// Bytes aligned to 8, which `owner` keeps alive.
struct OwnedBytes {
  std::shared_ptr<const void> owner;
  Bytes bytes;
};

class IndexFile {
 public:
  // Returns nothing if the file cannot be used, for any reason.
  static std::optional<IndexFile> load(const std::string& path);
  static std::optional<IndexFile> of(OwnedBytes content);

  std::size_t size() const noexcept { return places_.size(); }
  std::string_view name(std::size_t i) const noexcept;
  FileIdentity identity(std::size_t i) const noexcept;
  Content content(std::size_t i) const noexcept;

  // The number of the entry with this name. Fast if it is `hint`, or close to it.
  std::optional<std::size_t> find(std::string_view name,
                                  std::size_t hint = 0) const noexcept;

  // Entry `i`; nothing if its block was altered.
  std::optional<Index> index(std::size_t i) const;

 private:
  friend class IndexFileContent;

  // Where an entry has its name, in the tables, and its block, in the content.
  struct EntryPlace {
    std::uint64_t name = 0, block = 0;
  };

  explicit IndexFile(OwnedBytes content) : content_(std::move(content)) {}
  bool is_valid();
  const std::uint8_t* entry(std::size_t i) const noexcept;
  std::optional<std::uint64_t> block_bytes(std::size_t i) const noexcept;

  OwnedBytes content_;
  std::vector<std::uint8_t> tables_;  // a copy of the entries and names, valid
  std::vector<EntryPlace> places_;
};

// An index and the name of its file.
struct NamedIndex {
  std::string_view name;
  const Index* index = nullptr;
};

// Writes an index file. Of several indexes with the same name, it keeps the first one.
// The indexes must have no gaps. Not atomic: the caller writes to
// a temporary path and renames it. Throws IoError.
void save_index_file(const std::string& path, std::span<const NamedIndex> indexes);

}  // namespace fastrec
