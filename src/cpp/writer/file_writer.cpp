#include "writer/file_writer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastrec {
namespace {

// The path without symbolic links, or "" with errno set.
std::string real_path(const std::string& path) {
  struct Free {
    void operator()(char* text) const { ::free(text); }
  };
  const std::unique_ptr<char, Free> resolved(::realpath(path.c_str(), nullptr));
  return resolved ? resolved.get() : "";
}

// A path with a slash -> the directory, without its slash unless it is the root.
std::string directory_of(const std::string& path) {
  return path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
}

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// Where a file named `path` comes to lie. Throws IoError.
std::string resolve(const std::string& path, Existing existing) {
  struct stat status;
  if (::lstat(path.c_str(), &status) == 0 && existing == Existing::kRefuse) {
    throw IoError(EEXIST, path);
  }
  if (std::string whole = real_path(path); !whole.empty()) {
    // Checked because rename() would put a file in the place of a device.
    if (::stat(whole.c_str(), &status) != 0) throw IoError(errno, path);
    if (S_ISDIR(status.st_mode)) throw IoError(EISDIR, path);
    if (!S_ISREG(status.st_mode)) throw IoError(EINVAL, path);
    return whole;
  }
  if (errno != ENOENT) throw IoError(errno, path);

  const std::string name = name_of(path);
  const std::string directory = real_path(
      path.find('/') == std::string::npos ? std::string(".") : directory_of(path));
  if (directory.empty()) throw IoError(errno, path);
  if (name.empty()) throw IoError(ENOENT, path);
  return directory == "/" ? "/" + name : directory + "/" + name;
}

// Makes a rename in `directory` last. Not every file system can, and by then the file
// itself is safe, so a refusal is no failure.
void sync_directory(const std::string& directory) noexcept {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

FileWriter::FileWriter(std::string path, Existing existing)
    : path_(std::move(path)),
      target_(resolve(path_, existing)),
      existing_(existing),
      owner_(::getpid()) {
  buffer_.reserve(2 * kBufferBytes);
  create_temporary();
}

FileWriter::~FileWriter() { abandon(); }

void FileWriter::create_temporary() {
  static std::atomic<unsigned> n_created = 0;
  constexpr std::size_t kMostNameBytes = 200;  // of 255, to leave room for the rest

  const std::string name = name_of(target_).substr(0, kMostNameBytes);
  const std::string begin = target_.substr(0, target_.rfind('/') + 1) + "." + name +
                            "." + std::to_string(owner_) + "-";
  do {
    temporary_ = begin + std::to_string(n_created++) + ".tmp";
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                         S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH);
    // EEXIST is a file that an earlier process of this number left behind.
  } while (descriptor_ < 0 && (errno == EINTR || errno == EEXIST));
  if (descriptor_ < 0) throw IoError(errno, path_);
}

void FileWriter::check_open() const {
  if (failure_ != 0) throw IoError(failure_, path_);
  if (closed()) throw std::invalid_argument("the writer of " + path_ + " is closed");
}

bool FileWriter::fits(std::uint64_t length) const noexcept {
  return length < kBufferBytes && buffer_.size() + kFrameBytes + length < kBufferBytes;
}

void FileWriter::write_record(Bytes payload) {
  check_open();
  append_frame(payload, &buffer_);
  end_record();
}

void FileWriter::end_record() {
  ++n_records_;
  if (buffer_.size() >= kBufferBytes) flush();
}

void FileWriter::flush() {
  // The offset in the file is shared with the parent, whose records these bytes would
  // fall between.
  if (::getpid() != owner_) {
    throw std::invalid_argument("the writer of " + path_ +
                                " belongs to the process that made it, not to a fork");
  }
  constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // macOS refuses 2 GiB
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(descriptor_, buffer_.data() + done,
                              std::min(buffer_.size() - done, kMostAtOnce));
    if (n < 0 && errno != EINTR) fail(errno);
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  n_written_ += buffer_.size();
  buffer_.clear();
  // A single huge record should not keep its memory until the file is closed.
  if (buffer_.capacity() > 8 * kBufferBytes) {
    buffer_.shrink_to_fit();
    buffer_.reserve(2 * kBufferBytes);
  }
}

void FileWriter::close() {
  if (failure_ != 0) throw IoError(failure_, path_);
  if (closed()) return;
  flush();
  int result;
  do {
    result = ::fsync(descriptor_);
  } while (result != 0 && errno == EINTR);
  check(result);
  publish();
  // The data is on the disk already: there is nothing left to fail.
  ::close(std::exchange(descriptor_, -1));
  sync_directory(directory_of(target_));
}

void FileWriter::publish() {
  if (existing_ == Existing::kReplace) {
    check(::rename(temporary_.c_str(), target_.c_str()));
    return;
  }
  // Unlike rename(), link() never replaces anything.
  if (::link(temporary_.c_str(), target_.c_str()) == 0) {
    ::unlink(temporary_.c_str());
    return;
  }
  // Some file systems (FAT, many of those in user space) have no links. What remains
  // there is to look first, which leaves a gap of microseconds.
  if (errno != EPERM && errno != ENOTSUP && errno != EOPNOTSUPP && errno != ENOSYS) {
    fail(errno);
  }
  struct stat status;
  if (::lstat(target_.c_str(), &status) == 0) fail(EEXIST);
  check(::rename(temporary_.c_str(), target_.c_str()));
}

void FileWriter::abandon() noexcept {
  if (closed()) return;
  ::close(std::exchange(descriptor_, -1));
  if (::getpid() == owner_) ::unlink(temporary_.c_str());
}

void FileWriter::check(int result) {
  if (result != 0) fail(errno);
}

void FileWriter::fail(int errno_value) {
  failure_ = errno_value;
  abandon();
  throw IoError(errno_value, path_);
}

}  // namespace fastrec
