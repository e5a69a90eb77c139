#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/error.h"
#include "file/file.h"

#if defined(__linux__)
#include <sys/vfs.h>
#else
#include <sys/mount.h>
#include <sys/param.h>
#endif

namespace fastrec {
namespace {

FileState state_of(const struct stat& status) {
#if defined(__APPLE__)
  const timespec& modified = status.st_mtimespec;
#else
  const timespec& modified = status.st_mtim;
#endif
  return {static_cast<std::uint64_t>(status.st_dev),
          static_cast<std::uint64_t>(status.st_ino),
          {static_cast<std::uint64_t>(status.st_size),
           static_cast<std::int64_t>(modified.tv_sec) * 1'000'000'000 +
               static_cast<std::int64_t>(modified.tv_nsec)}};
}

// The errno for a file that is not a regular file; 0 for a regular file.
int type_error(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return 0;
  return S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
}

bool is_on_server(int descriptor) noexcept {
  struct statfs status;
  if (::fstatfs(descriptor, &status) != 0) return true;  // pread is always safe
#if defined(__linux__)
  // Source: linux/magic.h, and the kernel sources of the other file systems.
  constexpr std::uint32_t kRemote[] = {
      0x00006969,  // NFS
      0xff534d42,  // CIFS
      0xfe534d42,  // SMB2
      0x0000517b,  // SMB
      0x65735546,  // FUSE
      0x01021997,  // 9P
      0x00c36400,  // Ceph
      0x5346414f,  // AFS
      0x0bd00bd0,  // Lustre
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
  };
  const auto type = static_cast<std::uint32_t>(status.f_type);
  return std::find(std::begin(kRemote), std::end(kRemote), type) != std::end(kRemote);
#else
  return (status.f_flags & MNT_LOCAL) == 0;
#endif
}

}  // namespace

std::optional<FileState> state_at(const std::string& path) noexcept {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return state_of(status);
}

File::File(std::string path, Links links) : path_(std::move(path)), descriptor_(-1) {
  const int no_links = links == Links::kRefused ? O_NOFOLLOW : 0;
  do {
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | no_links);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) throw IoError(errno, path_);

  struct stat status;
  const int error = ::fstat(descriptor_, &status) != 0 ? errno : type_error(status);
  if (error != 0) {
    ::close(descriptor_);
    throw IoError(error, path_);
  }
  state_ = state_of(status);
}

File::~File() { ::close(descriptor_); }

bool File::is_unchanged() const noexcept {
  struct stat status;
  return ::fstat(descriptor_, &status) == 0 && state_of(status).identity == identity();
}

bool File::is_remote() const noexcept {
  // Successive files are often on the same device, and the call takes as long as a read.
  struct Device {
    std::uint64_t number;
    bool is_remote;
  };
  thread_local std::optional<Device> last;
  if (!last || last->number != state_.device) {
    last = {state_.device, is_on_server(descriptor_)};
  }
  return last->is_remote;
}

std::size_t File::read_at(std::uint64_t offset, MutableBytes into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::pread(descriptor_, into.data() + done, into.size() - done,
                              static_cast<off_t>(offset + done));
    if (n < 0) {
      if (errno == EINTR) continue;
      throw IoError(errno, path_);
    }
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void File::advise_random() const noexcept {
#if defined(__APPLE__)
  (void)::fcntl(descriptor_, F_RDAHEAD, 0);
#else
  (void)::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
#endif
}

void File::will_need(std::uint64_t offset, std::uint64_t length) const noexcept {
#if defined(__APPLE__)
  radvisory advice{};
  advice.ra_offset = static_cast<off_t>(offset);
  advice.ra_count = static_cast<int>(
      std::min<std::uint64_t>(length, std::numeric_limits<int>::max()));
  (void)::fcntl(descriptor_, F_RDADVISE, &advice);
#else
  (void)::posix_fadvise(descriptor_, static_cast<off_t>(offset),
                        static_cast<off_t>(length), POSIX_FADV_WILLNEED);
#endif
}

std::uint64_t count_disk_reads() noexcept {
#if defined(__linux__)
  constexpr int kWho = RUSAGE_THREAD;
#else
  constexpr int kWho = RUSAGE_SELF;
#endif
  struct rusage usage;
  if (::getrusage(kWho, &usage) != 0) return 0;
  // Blocks count when a read or hint submits them. Kernels without block accounting
  // still count major faults.
  return static_cast<std::uint64_t>(usage.ru_inblock) +
         static_cast<std::uint64_t>(usage.ru_majflt);
}

}  // namespace fastrec
