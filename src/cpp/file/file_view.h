// FileView: one open file, read through a mapping, by pread, or in ranges from a remote
// store.
// FileTable: the files of a dataset, opened on demand.
//
// A view is shared: it stays usable after the table has closed the file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/names.h"
#include "base/prefetch.h"
#include "file/buffer.h"
#include "file/file.h"
#include "file/mapping.h"
#include "file/range_requests.h"

namespace fastrec {

enum class Io : std::uint8_t {
  kAuto,  // a mapping; pread if that fails or the file is remote
  kMmap,
  kPread,
  kRanges,  // RangeRequests, of a file in a remote store
};

template <>
struct Names<Io> {
  static constexpr const char* kAll[] = {"auto", "mmap", "pread", "ranges"};
};

class FileView {
 public:
  // `name` is the path to report in errors; by default `path`. With kAuto, smaller files
  // than `mapped_bytes_min` are read by pread. Throws IoError.
  FileView(std::string path, Io io, std::string name = {},
           std::uint64_t mapped_bytes_min = 0);

  // Files of which so few bytes are read that a mapping costs more than pread.
  static constexpr std::uint64_t kSmallBytes = std::uint64_t{64} << 10;

  // File number `file` of `requests`.
  FileView(std::string name, std::shared_ptr<RangeRequests> requests, std::size_t file);

  const std::string& name() const noexcept { return name_; }
  const FileIdentity& identity() const noexcept { return state_.identity; }
  std::uint64_t size() const noexcept { return identity().size; }

  // nullptr if the file is not mapped.
  const Mapping* mapping() const noexcept { return mapping_ ? &*mapping_ : nullptr; }

  // Whether it keeps a file descriptor open.
  bool has_descriptor() const noexcept { return file_.has_value(); }

  // Copies [offset, offset + length) to `buffer`, or holds bytes from a remote store in
  // it; the result is shorter at the end of the file. Allocates no memory for bytes past
  // the size at opening. Throws IoError, Error if mapped pages were lost, and what
  // RangeRequests::read() throws. With kPeek, the bytes will be read again soon.
  using Use = RangeRequests::Use;
  Bytes copy(std::uint64_t offset, std::uint64_t length, Buffer* buffer,
             Use use = Use::kLast) const;

  // Callers that read [offset, offset + length) in the mapping call this before they
  // use the data. Throws IoError, and Error if mapped pages were lost.
  void check_valid(std::uint64_t offset, std::uint64_t length) const {
    if (mapping_ && mapping_->n_valid() < offset + length) throw_lost(offset);
  }

  // How the file has changed since it was opened, as text for an error message; empty if
  // it has not. A replaced file is still read in its old version.
  enum class Replaced : std::uint8_t { kReported, kIgnored };
  std::string describe_change(Replaced replaced = Replaced::kReported) const;

  // The following are hints: cheap, never an error, and without effect for bytes past
  // the end of the file.
  //
  // Starts reading these bytes if they are not in memory. Cheap for megabytes in memory.
  void will_need(std::uint64_t offset, std::uint64_t length) const noexcept;

  // The same without checking whether they are in memory.
  void read_ahead(std::uint64_t offset, std::uint64_t length) const noexcept;

  // A range of this size is released while it is copied, so that it is not in memory
  // twice.
  static constexpr std::uint64_t kReleasedBytes = std::uint64_t{64} << 20;

  // Unmaps the pages of these bytes, which stay in the page cache and remain readable.
  void release(std::uint64_t offset, std::uint64_t length) const noexcept {
    if (mapping_ && offset < size()) {
      mapping_->release(offset, std::min(length, size() - offset));
    }
  }

  // Opens the file again for random reads by pread; nullptr if it has changed.
  std::unique_ptr<const FileView> reopen_for_random_reads() const;

  // Prefetches mapped bytes into the CPU's cache.
  void prefetch(std::uint64_t offset, std::uint64_t length) const noexcept {
    if (!mapping_ || offset >= size()) return;
    const auto n = static_cast<std::size_t>(std::min(length, size() - offset));
    const std::uint8_t* begin = mapping_->bytes().data() + offset;
    for (std::size_t i = 0; i < n; i += kCacheLineBytes) fastrec::prefetch(begin + i);
  }

  // Whether the file is on a network: in a remote store or a network file system.
  bool is_remote() const noexcept { return is_remote_; }

  // The requests for a file in a remote store; else nullptr.
  RangeRequests* requests() const noexcept { return requests_.get(); }

 private:
  [[noreturn]] void throw_lost(std::uint64_t offset) const;

  std::string path_, name_;
  FileState state_;
  bool is_remote_ = false;
  std::optional<File> file_;                 // pread
  std::optional<Mapping> mapping_;           // mmap: the descriptor is closed
  std::shared_ptr<RangeRequests> requests_;  // ranges
  std::size_t number_ = 0;                   // of the file in the requests
};

class FileTable {
 public:
  // `ios` has one element per file, or one for all. `names` are the paths to report in
  // errors, if they differ from `paths`. Readers return a fault for records of more
  // than `record_bytes_max` bytes. Files that are read by ranges have their numbers in
  // `requests`, which the table stops in the end. With `is_assumed_plain`, readers check
  // that a file is not compressed before they read frames.
  FileTable(std::vector<std::string> paths, std::vector<Io> ios,
            std::vector<std::string> names = {},
            std::uint64_t record_bytes_max = std::numeric_limits<std::uint64_t>::max(),
            std::shared_ptr<RangeRequests> requests = nullptr,
            bool is_assumed_plain = false);
  ~FileTable();
  FileTable(const FileTable&) = delete;
  FileTable& operator=(const FileTable&) = delete;

  std::size_t size() const noexcept { return paths_.size(); }
  const std::string& name(std::size_t index) const {
    return names_.empty() ? paths_[index] : names_[index];
  }

  std::uint64_t record_bytes_max() const noexcept { return record_bytes_max_; }
  bool is_assumed_plain() const noexcept { return is_assumed_plain_; }

  // nullptr if no file is in a remote store.
  RangeRequests* requests() const noexcept { return requests_.get(); }

  // From now on, open() throws unless a file has its identity here: one for each file,
  // or none to accept any. Closes the files of which another version is open.
  void expect(std::vector<FileIdentity> identities);

  // Returns file `index`, and opens it if necessary. Any thread may call this. Throws
  // IoError, and Error if the file is not the expected version.
  std::shared_ptr<const FileView> open(std::size_t index);

  // Hints that all of `ranges` will be read; see FileView::will_need().
  void will_need(std::span<const FileRange> ranges) noexcept;

  // A separate view of file `index`, which the table does not keep open. Local files are
  // mapped as by FileView().
  std::shared_ptr<const FileView> view_of(std::size_t index,
                                          std::uint64_t mapped_bytes_min) const;

  // See FileView::describe_change(); empty if file `index` is not open.
  std::string describe_change(std::size_t index) const;

  // Throws Error if a file was modified after it was opened, so that its records may
  // mix two versions. Costs a system call for each open file.
  void check_unchanged() const;

 private:
  // Other views than those read by pread hold no descriptor. A process limited to 1,024 descriptors must be
  // able to read datasets of 100,000 files.
  static constexpr std::size_t kMaxDescriptors = 48;
  static constexpr std::size_t kMaxMappings = 4096;

  Io io_of(std::size_t index) const { return ios_[ios_.size() == 1 ? 0 : index]; }
  std::shared_ptr<const FileView> keep(std::size_t index,
                                       std::shared_ptr<const FileView> view,
                                       std::shared_ptr<const FileView>* evicted);

  std::vector<std::string> paths_;
  std::vector<Io> ios_;
  std::vector<std::string> names_;  // empty if equal to paths_
  std::uint64_t record_bytes_max_;
  const std::shared_ptr<RangeRequests> requests_;
  bool is_assumed_plain_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const FileView>> views_;
  std::vector<FileIdentity> expected_;     // empty if unknown
  std::deque<std::size_t> mapped_, read_;  // open files without and with a
                                           // descriptor, oldest first
  std::optional<Error> changed_;           // of a file that has been closed
};

}  // namespace fastrec
