// File: path -> an open regular file, its identity, and positioned reads.
//
// Opening never blocks: a FIFO is an error. Several threads may use one File.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"

namespace fastrec {

// Distinguishes versions of a file.
struct FileIdentity {
  std::uint64_t size = 0;     // bytes
  std::int64_t mtime_ns = 0;  // nanoseconds since the epoch

  bool operator==(const FileIdentity&) const = default;
};

// Identifies a file and its version.
struct FileState {
  std::uint64_t device = 0, inode = 0;
  FileIdentity identity;
};

// The current file at `path`; nothing if stat() fails.
std::optional<FileState> state_at(const std::string& path) noexcept;

class File {
 public:
  // Whether the last component of a path may be a symbolic link.
  enum class Links : std::uint8_t { kFollowed, kRefused };

  // Throws IoError if `path` cannot be opened or is not a regular file.
  explicit File(std::string path, Links links = Links::kFollowed);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const noexcept { return path_; }
  // The state at the time of opening.
  const FileState& state() const noexcept { return state_; }
  const FileIdentity& identity() const noexcept { return state_.identity; }
  int descriptor() const noexcept { return descriptor_; }

  // Whether the open file, which may have lost its path, still has its first identity.
  bool is_unchanged() const noexcept;

  // Whether the file is on a network file system, where reading a mapping may fail.
  bool is_remote() const noexcept;

  // Reads bytes from `offset` on. Returns their number, which is less than into.size()
  // only at the end of the file. Throws IoError.
  std::size_t read_at(std::uint64_t offset, MutableBytes into) const;

  // Hints that reads are random, which turns off readahead.
  void advise_random() const noexcept;

  // Hints that these bytes will be read soon. Does not block.
  void will_need(std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  std::string path_;
  int descriptor_;
  FileState state_;
};

// The number of disk reads that this thread (on Linux; elsewhere the process) has
// caused, by reads, mappings or hints. Costs a system call.
std::uint64_t count_disk_reads() noexcept;

}  // namespace fastrec
