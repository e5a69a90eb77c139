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
#include "record/indexes.h"

namespace fastrec {

// Bytes aligned to 8, which `owner` keeps alive.
struct OwnedBytes {
  std::shared_ptr<const void> owner;
  Bytes bytes;
};

// The code of a content in an index file: 0 for plain, 1 for GZIP, 2 for ZLIB.
std::uint8_t code_of(Content content);
// Throws std::invalid_argument.
Content content_of_code(unsigned code);
// The code of a content that is not known, or that does not matter.
inline constexpr std::uint8_t kAnyContent = 255;

// The files of a dataset, and what an entry must have in common with them.
struct IndexQuery {
  std::span<const std::string> names = {};
  std::span<const FileIdentity> versions = {};
  std::span<const std::uint8_t> contents = {};  // codes
  bool needs_crcs = false;
  bool ignores_times = false;   // compare only sizes
  FileTable* probed = nullptr;  // sampled frames must be where the entry says
};

// Indexes, and the numbers of their files.
struct FoundIndexes {
  std::vector<std::int64_t> files;
  std::vector<Index> indexes;
};

class IndexFile {
 public:
  // Returns nothing if the file cannot be used, for any reason.
  static std::optional<IndexFile> load(const std::string& path);
  static std::optional<IndexFile> of(OwnedBytes content);
  static std::optional<IndexFile> of(Bytes content);  // copies it

  std::size_t size() const noexcept { return places_.size(); }
  std::string_view name(std::size_t i) const noexcept;
  FileIdentity identity(std::size_t i) const noexcept;
  Content content(std::size_t i) const noexcept;

  // The number of the entry with this name. Fast if it is `hint`, or close to it.
  std::optional<std::size_t> find(std::string_view name,
                                  std::size_t hint = 0) const noexcept;

  // The entries of those files of `wanted` that match the query. Throws IoError,
  // std::invalid_argument and std::out_of_range.
  FoundIndexes find(const IndexQuery& query,
                    std::span<const std::int64_t> wanted) const;

  // The code of the content of each name, or kAnyContent.
  std::vector<std::uint8_t> contents(std::span<const std::string> names) const;

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

// Saves the indexes of `names` that have no gaps, and the entries of `others` with other
// names. With a directory, leaves out entries of files that do not exist there. Throws
// IoError and std::invalid_argument.
void save_indexes(const std::string& path, std::span<const std::string> names,
                  const Indexes& indexes, std::span<const IndexFile* const> others,
                  const std::optional<std::string>& directory);

}  // namespace fastrec
