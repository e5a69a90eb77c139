#include "record/index_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "crc32c/crc32c.h"
#include "file/mapping.h"

namespace fastrec {
namespace {

constexpr std::string_view kKind = "frecidx3";

constexpr std::size_t kFilesAt = 8, kNamesSizeAt = 16, kFileSizeAt = 24;
constexpr std::size_t kTablesCrcAt = 32, kHeaderCrcAt = 36, kFileHeaderBytes = 40;

constexpr std::size_t kSizeAt = 0, kMtimeAt = 8, kRecordsAt = 16, kBlockCrcAt = 24;
constexpr std::size_t kNameSizeAt = 28, kWidthAt = 30, kFlagsAt = 31, kEntryBytes = 32;

constexpr std::uint8_t kHasCrcs = 128;
constexpr std::array kContents = {Content::kTfrecord, Content::kGzip, Content::kZlib};

std::uint64_t padded(std::uint64_t size) { return (size + 7) / 8 * 8; }

// Smaller content is copied, so that 100,000 files do not need 100,000 mappings.
constexpr std::size_t kMappedBytes = std::size_t{1} << 20;

using Header = std::array<std::uint8_t, kFileHeaderBytes>;
using Entry = std::array<std::uint8_t, kEntryBytes>;

Header header_of(std::uint64_t n_files, std::uint64_t names_size,
                 std::uint64_t file_size, std::uint32_t tables_crc) {
  Header header = {};
  std::copy(kKind.begin(), kKind.end(), header.begin());
  store_le(header.data() + kFilesAt, n_files);
  store_le(header.data() + kNamesSizeAt, names_size);
  store_le(header.data() + kFileSizeAt, file_size);
  store_le(header.data() + kTablesCrcAt, tables_crc);
  store_le(header.data() + kHeaderCrcAt, crc32c({header.data(), kHeaderCrcAt}));
  return header;
}

// The content of a whole file; nothing if it was truncated meanwhile. Processes share the
// pages of large content, which may change at any time, and lost pages become zeros
// (file/guard.h). So the caller must check a copy of what it reads. Throws IoError.
// Bytes to be written through the second result.
std::pair<OwnedBytes, std::uint8_t*> new_bytes(std::size_t size) {
  // A vector of words, for the alignment.
  const auto words =
      std::make_shared<std::vector<std::uint64_t>>(size / sizeof(std::uint64_t) + 1);
  auto* bytes = reinterpret_cast<std::uint8_t*>(words->data());
  return {{words, {bytes, size}}, bytes};
}

std::optional<OwnedBytes> contents_of(const File& file) {
  const auto size = static_cast<std::size_t>(file.identity().size);
  if (size >= kMappedBytes) {
    const auto mapping = std::make_shared<const Mapping>(file);
    return OwnedBytes{mapping, mapping->bytes()};
  }
  const auto [content, bytes] = new_bytes(size);
  if (file.read_at(0, {bytes, size}) != size) return std::nullopt;
  return content;
}

}  // namespace

std::uint8_t code_of(Content content) {
  return static_cast<std::uint8_t>(std::ranges::find(kContents, content) -
                                   kContents.begin());
}

Content content_of_code(unsigned code) {
  if (code < kContents.size()) return kContents[code];
  throw std::invalid_argument("content must be 0, 1 or 2");
}

// The parts of an index as an index file stores them.
class IndexFileContent {
 public:
  static Bytes block(const Index& index) {
    std::uint64_t size = *PackedOffsets::size_of(index.n_records_, index.width_);
    if (index.has_payload_crcs_) size += Index::crc_bytes(index.n_records_);
    return {index.bytes_, static_cast<std::size_t>(size)};
  }

  static Entry entry(const NamedIndex& named) {
    const Index& index = *named.index;
    const std::uint8_t flags = code_of(index.content_);
    Entry entry = {};
    store_le(entry.data() + kSizeAt, index.identity_.size);
    store_le(entry.data() + kMtimeAt,
             static_cast<std::uint64_t>(index.identity_.mtime_ns));
    store_le(entry.data() + kRecordsAt, index.n_records_);
    store_le(entry.data() + kBlockCrcAt, crc32c(block(index)));
    store_le(entry.data() + kNameSizeAt, static_cast<std::uint16_t>(named.name.size()));
    entry[kWidthAt] = index.width_;
    entry[kFlagsAt] =
        static_cast<std::uint8_t>(flags | (index.has_payload_crcs_ ? kHasCrcs : 0));
    return entry;
  }
};

std::optional<IndexFile> IndexFile::load(const std::string& path) {
  try {
    auto content = contents_of(File(path, File::Links::kRefused));
    if (!content) return std::nullopt;
    return of(std::move(*content));
  } catch (const IoError&) {
    return std::nullopt;  // absent or unreadable: the caller scans the files again
  }
}

std::optional<IndexFile> IndexFile::of(OwnedBytes content) {
  IndexFile file(std::move(content));
  if (!file.is_valid()) return std::nullopt;
  return file;
}

std::optional<IndexFile> IndexFile::of(Bytes content) {
  auto [copy, bytes] = new_bytes(content.size());
  std::ranges::copy(content, bytes);
  return of(std::move(copy));
}

const std::uint8_t* IndexFile::entry(std::size_t i) const noexcept {
  return tables_.data() + i * kEntryBytes;
}

std::optional<std::uint64_t> IndexFile::block_bytes(std::size_t i) const noexcept {
  const auto n_records = load_le<std::uint64_t>(entry(i) + kRecordsAt);
  auto size = PackedOffsets::size_of(n_records, entry(i)[kWidthAt]);
  if (size && (entry(i)[kFlagsAt] & kHasCrcs)) *size += Index::crc_bytes(n_records);
  return size;
}

// Copies the tables, checks the header and the copy, and sets `places_`.
bool IndexFile::is_valid() {
  const Bytes bytes = content_.bytes;
  if (bytes.size() < kFileHeaderBytes) return false;
  Header found;
  std::ranges::copy(bytes.first(kFileHeaderBytes), found.begin());
  const auto n_files = load_le<std::uint64_t>(found.data() + kFilesAt);
  const auto names_size = load_le<std::uint64_t>(found.data() + kNamesSizeAt);
  const auto tables_crc = load_le<std::uint32_t>(found.data() + kTablesCrcAt);
  if (found != header_of(n_files, names_size, bytes.size(), tables_crc)) return false;

  std::uint64_t remaining = bytes.size() - kFileHeaderBytes;
  if (n_files > remaining / kEntryBytes) return false;
  remaining -= n_files * kEntryBytes;
  if (names_size > remaining || padded(names_size) > remaining) return false;
  const std::uint64_t names_at = n_files * kEntryBytes;
  const Bytes tables = bytes.subspan(kFileHeaderBytes, names_at + padded(names_size));
  tables_.assign(tables.begin(), tables.end());
  if (crc32c(tables_) != tables_crc) return false;
  places_.reserve(n_files);
  EntryPlace end{.name = names_at, .block = kFileHeaderBytes + tables_.size()};
  for (std::size_t i = 0; i < n_files; ++i) {
    places_.push_back(end);
    const std::optional<std::uint64_t> n_bytes = block_bytes(i);
    if (!n_bytes || *n_bytes > bytes.size() - end.block) return false;
    end.block += *n_bytes;
    const auto name_size = load_le<std::uint16_t>(entry(i) + kNameSizeAt);
    if (name_size > names_at + names_size - end.name) return false;
    end.name += name_size;
    if ((entry(i)[kFlagsAt] & ~kHasCrcs) >= kContents.size()) return false;
  }
  return end.name == names_at + names_size && end.block == bytes.size();
}

std::string_view IndexFile::name(std::size_t i) const noexcept {
  const auto size = load_le<std::uint16_t>(entry(i) + kNameSizeAt);
  return as_text(Bytes(tables_).subspan(places_[i].name, size));
}

FileIdentity IndexFile::identity(std::size_t i) const noexcept {
  return {load_le<std::uint64_t>(entry(i) + kSizeAt),
          static_cast<std::int64_t>(load_le<std::uint64_t>(entry(i) + kMtimeAt))};
}

Content IndexFile::content(std::size_t i) const noexcept {
  return kContents[entry(i)[kFlagsAt] & ~kHasCrcs & 0xff];
}

std::optional<std::size_t> IndexFile::find(std::string_view name,
                                           std::size_t hint) const noexcept {
  if (hint < size() && this->name(hint) == name) return hint;
  std::size_t begin = 0, end = size();
  while (begin < end) {
    const std::size_t middle = begin + (end - begin) / 2;
    const std::string_view found = this->name(middle);
    if (found == name) return middle;
    (found < name ? begin : end) = found < name ? middle + 1 : middle;
  }
  return std::nullopt;
}

FoundIndexes IndexFile::find(const IndexQuery& query,
                             std::span<const std::int64_t> wanted) const {
  const std::size_t n_files = query.names.size();
  if (query.versions.size() != n_files || query.contents.size() != n_files) {
    throw std::invalid_argument("names, versions and contents must have one per file");
  }
  FoundIndexes found;
  std::size_t hint = 0;
  for (const std::int64_t number : wanted) {
    const auto i = static_cast<std::size_t>(number);
    if (i >= n_files) throw std::out_of_range("a number is out of range");
    const std::optional<std::size_t> entry = find(query.names[i], hint);
    if (!entry) continue;
    hint = *entry + 1;
    const FileIdentity version = query.versions[i], known = identity(*entry);
    if (query.ignores_times ? known.size != version.size : known != version) continue;
    const std::optional<Index> index = this->index(*entry);
    if (!index) continue;
    const std::uint8_t content = query.contents[i];
    if (content != kAnyContent && content != code_of(index->content())) continue;
    if (query.needs_crcs && !index->has_payload_crcs()) continue;
    if (query.probed != nullptr && !index->is_plausible(*query.probed->open(i))) {
      continue;
    }
    found.files.push_back(number);
    found.indexes.push_back(index->with_mtime(version.mtime_ns));
  }
  return found;
}

std::vector<std::uint8_t> IndexFile::contents(
    std::span<const std::string> names) const {
  std::vector<std::uint8_t> codes;
  codes.reserve(names.size());
  std::size_t hint = 0;
  for (const std::string& name : names) {
    const std::optional<std::size_t> entry = find(name, hint);
    if (entry) hint = *entry + 1;
    codes.push_back(entry ? code_of(content(*entry)) : kAnyContent);
  }
  return codes;
}

std::optional<Index> IndexFile::index(std::size_t i) const {
  const Bytes block = content_.bytes.subspan(places_[i].block,
                                             static_cast<std::size_t>(*block_bytes(i)));
  Index index(identity(i), content(i));
  index.n_records_ = load_le<std::uint64_t>(entry(i) + kRecordsAt);
  index.width_ = entry(i)[kWidthAt];
  index.has_payload_crcs_ = (entry(i)[kFlagsAt] & kHasCrcs) != 0;
  index.bytes_ = block.data();
  index.owner_ = content_.owner;
  if (index.has_payload_crcs_) {
    // Payload checksums are used without a check, so they must not be in a mapping,
    // whose lost pages become zeros. Of a lost offset, the frame is invalid.
    auto copy = std::make_shared<std::vector<std::uint64_t>>(block.size() / 8);
    index.bytes_ = reinterpret_cast<std::uint8_t*>(copy->data());
    std::ranges::copy(block, reinterpret_cast<std::uint8_t*>(copy->data()));
    index.owner_ = std::move(copy);
  }
  if (crc32c({index.bytes_, block.size()}) !=
      load_le<std::uint32_t>(entry(i) + kBlockCrcAt)) {
    return std::nullopt;
  }
  const bool is_plain = index.content_ == Content::kTfrecord;
  if (index.offset(0) != 0 || (is_plain && index.n_bytes() != index.identity_.size)) {
    return std::nullopt;
  }
  return index;
}

void save_index_file(const std::string& path, std::span<const NamedIndex> indexes) {
  std::map<std::string_view, const Index*> by_name;
  for (const auto& [name, index] : indexes) by_name.try_emplace(name, index);
  std::vector<NamedIndex> sorted;
  sorted.reserve(by_name.size());
  for (const auto& [name, index] : by_name) sorted.push_back({name, index});

  std::vector<std::uint8_t> tables;
  std::uint64_t blocks_size = 0, names_size = 0;
  for (const NamedIndex& named : sorted) {
    if (named.name.size() > std::numeric_limits<std::uint16_t>::max()) {
      throw IoError(ENAMETOOLONG, path);
    }
    const Entry entry = IndexFileContent::entry(named);
    tables.insert(tables.end(), entry.begin(), entry.end());
    blocks_size += IndexFileContent::block(*named.index).size();
    names_size += named.name.size();
  }
  for (const NamedIndex& named : sorted) {
    tables.insert(tables.end(), named.name.begin(), named.name.end());
  }
  tables.resize(tables.size() + (padded(names_size) - names_size));
  const Header header =
      header_of(sorted.size(), names_size,
                kFileHeaderBytes + tables.size() + blocks_size, crc32c(tables));

  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw IoError(errno, path);
  errno = 0;
  bool is_written = true;
  const auto write = [&](Bytes bytes) {
    is_written =
        is_written && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  };
  write(header);
  write(tables);
  for (const NamedIndex& named : sorted) write(IndexFileContent::block(*named.index));
  const int write_errno = errno;
  if (std::fclose(file) != 0) throw IoError(errno, path);
  if (!is_written) throw IoError(write_errno, path);
}

void save_indexes(const std::string& path, std::span<const std::string> names,
                  const Indexes& indexes, std::span<const IndexFile* const> others,
                  const std::optional<std::string>& directory) {
  if (names.size() != indexes.size()) {
    throw std::invalid_argument("names must have one per index");
  }
  std::vector<NamedIndex> named;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (indexes[i].gaps().empty()) named.push_back({names[i], &indexes[i]});
  }
  std::vector<std::string_view> known(names.begin(), names.end());
  std::ranges::sort(known);
  std::deque<Index> kept;  // a deque does not move them
  for (const IndexFile* other : others) {
    for (std::size_t i = 0; i < other->size(); ++i) {
      const std::string_view name = other->name(i);
      if (std::ranges::binary_search(known, name)) continue;
      if (directory && !state_at(*directory + "/" + std::string(name))) continue;
      std::optional<Index> index = other->index(i);
      if (index) named.push_back({name, &kept.emplace_back(std::move(*index))});
    }
  }
  save_index_file(path, named);
}

}  // namespace fastrec
