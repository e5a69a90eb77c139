// File: path -> an open file that is proven to be a regular one, its identity, and
// its bytes by position.
//
// Opening never blocks: a FIFO is refused. Every read has its own offset, so several
// threads may use one File.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace fastrec {

// What tells two versions of a file apart.
struct FileIdentity {
  std::uint64_t size = 0;     // bytes
  std::int64_t mtime_ns = 0;  // nanoseconds since the epoch

  bool operator==(const FileIdentity&) const = default;
};

// Which file it is, and which version of it.
struct FileState {
  std::uint64_t device = 0, inode = 0;
  FileIdentity identity;
};

// The file that is at `path` now; nothing where none can be seen.
std::optional<FileState> look_at(const std::string& path) noexcept;

class File {
 public:
  // Whether the last part of a path may be a symbolic link.
  enum class Links : std::uint8_t { kFollowed, kRefused };

  // Throws IoError if `path` cannot be opened or is not a regular file.
  explicit File(std::string path, Links links = Links::kFollowed);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const noexcept { return path_; }
  // As it was when it was opened.
  const FileState& state() const noexcept { return state_; }
  const FileIdentity& identity() const noexcept { return state_.identity; }
  int descriptor() const noexcept { return descriptor_; }

  // Whether the bytes come over a network, where a mapping can fail under the reader.
  bool is_remote() const noexcept;

  // Fills `into` from `offset` on and returns how many bytes there were: fewer than
  // asked for only at the end of the file. Throws IoError.
  std::size_t read_at(std::uint64_t offset, MutableBytes into) const;

  // Reads are not in order: none of them brings about more than it asks for. Advice.
  void expect_random() const noexcept;

  // These bytes will be read soon. Advice: it returns at once and cannot fail.
  void will_need(std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  std::string path_;
  int descriptor_;
  FileState state_;
};

// A count that grows when this thread (on Linux; elsewhere the process) makes the
// system read from a disk: by a read, a mapping or advice. Costs a system call.
std::uint64_t count_disk_reads() noexcept;

}  // namespace fastrec
