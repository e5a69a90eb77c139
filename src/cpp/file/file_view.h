// FileView: one open file, read through its mapping or by pread, behind one view.
// FileTable: the files of a data set, opened when they are needed.
//
// Both ways give the same bytes. A view outlives the table's interest in it: whoever
// holds the shared_ptr may go on reading.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/names.h"
#include "base/prefetch.h"
#include "file/buffer.h"
#include "file/file.h"
#include "file/mapping.h"

namespace fastrec {

enum class Io : std::uint8_t {
  kAuto,  // the mapping, but pread where that fails or the file is remote
  kMmap,
  kPread,
};

template <>
struct Names<Io> {
  static constexpr const char* kAll[] = {"auto", "mmap", "pread"};
};

class FileView {
 public:
  // `name` is what errors in its bytes call the file; `path` by default. Throws
  // IoError.
  FileView(std::string path, Io io, std::string name = {});

  const std::string& name() const noexcept { return name_; }
  const FileIdentity& identity() const noexcept { return state_.identity; }
  std::uint64_t size() const noexcept { return identity().size; }

  // All bytes of the file where it is mapped; nullptr where it is read by pread.
  const Mapping* mapping() const noexcept { return mapping_ ? &*mapping_ : nullptr; }

  // A private copy of [offset, offset + length) in `buffer`, shorter at the end of the
  // file. Nothing is allocated for bytes that the file did not have when it was opened.
  // Throws IoError, and Error where mapped bytes were lost.
  Bytes copy(std::uint64_t offset, std::uint64_t length, Buffer* buffer) const;

  // Whoever read the bytes [offset, offset + length) in the mapping, rather than a
  // copy, calls this before believing them. Throws IoError, and Error where they were
  // lost.
  void check_kept(std::uint64_t offset, std::uint64_t length) const {
    if (mapping_ && mapping_->n_kept() < offset + length) throw_lost(offset);
  }

  // What has been done to the file since it was opened. A file that another one has
  // taken the place of is read as it was.
  enum class Change : std::uint8_t { kNone, kResized, kRewritten, kReplaced };
  Change change() const noexcept;
  // The same in words, after an error in what was read; nothing where it is kNone.
  std::string describe_change() const;

  // Advice that costs little and is never an error; bytes that the file does not have
  // are left out.
  //
  // These bytes will be read soon: where they are on a disk, they are on their way from
  // there when this returns. Cheap where they are in memory already, also for
  // megabytes.
  void will_need(std::uint64_t offset, std::uint64_t length) const noexcept;

  // The same without looking first whether they are in memory.
  void read_ahead(std::uint64_t offset, std::uint64_t length) const noexcept;

  // Mapped bytes leave the memory of this process, and stay in the page cache. They can
  // be read as before.
  void release(std::uint64_t offset, std::uint64_t length) const noexcept {
    if (mapping_ && offset < size()) {
      mapping_->release(offset, std::min(length, size() - offset));
    }
  }

  // They will be read next: mapped bytes come into the CPU's cache.
  void prefetch(std::uint64_t offset, std::uint64_t length) const noexcept {
    if (!mapping_ || offset >= size()) return;
    const auto n = static_cast<std::size_t>(std::min(length, size() - offset));
    const std::uint8_t* begin = mapping_->bytes().data() + offset;
    for (std::size_t i = 0; i < n; i += kCacheLineBytes) fastrec::prefetch(begin + i);
  }

  // Whether the bytes come over a network.
  bool is_remote() const noexcept { return is_remote_; }

 private:
  [[noreturn]] void throw_lost(std::uint64_t offset) const;

  std::string path_, name_;
  FileState state_;
  bool is_remote_ = false;
  std::optional<File> file_;        // pread
  std::optional<Mapping> mapping_;  // mmap: the descriptor is closed
};

class FileTable {
 public:
  // `ios` says how each file is read; a single one holds for all. `names` is what
  // errors call the files, where that is not where they lie. Records of more than
  // `record_bytes_max` bytes are refused by whoever reads them.
  FileTable(std::vector<std::string> paths, std::vector<Io> ios,
            std::vector<std::string> names = {},
            std::uint64_t record_bytes_max = std::numeric_limits<std::uint64_t>::max());

  std::size_t size() const noexcept { return paths_.size(); }
  const std::string& name(std::size_t index) const {
    return names_.empty() ? paths_[index] : names_[index];
  }

  std::uint64_t record_bytes_max() const noexcept { return record_bytes_max_; }

  // From now on, open() refuses file `index` unless it is of this identity, also where
  // it has opened another version of it before.
  void expect(std::size_t index, const FileIdentity& identity);

  // Opens file `index`, or finds it open. Any thread may call this. Throws IoError, and
  // Error where the file is not the expected one.
  std::shared_ptr<const FileView> open(std::size_t index);

  // What was done to file `index` since it was opened, in words; nothing where it was
  // left alone, or is not open.
  std::string describe_change(std::size_t index) const;

  // Throws Error if a file that was opened is not what it was then: its records may be
  // partly of one version and partly of another. Costs a system call for each open
  // file.
  void check_unchanged() const;

 private:
  // A view read by pread holds a descriptor, a mapped one holds none. Data sets of
  // 100,000 files must fit into a process that may open 1,024.
  static constexpr std::size_t kMostDescriptors = 48;
  static constexpr std::size_t kMostMappings = 4096;

  std::shared_ptr<const FileView> keep(std::size_t index,
                                       std::shared_ptr<const FileView> view,
                                       std::shared_ptr<const FileView>* evicted);

  std::vector<std::string> paths_;
  std::vector<Io> ios_;
  std::vector<std::string> names_;  // empty: they are the paths
  std::uint64_t record_bytes_max_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const FileView>> views_;
  std::vector<std::optional<FileIdentity>> expected_;
  std::deque<std::size_t> mapped_, read_;  // what is open, oldest first
  std::optional<Error> changed_;           // of a file that is not open any more
};

}  // namespace fastrec
