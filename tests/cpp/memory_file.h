// MemoryFile: bytes -> a regular file in memory with a path that is not a link.
//
// Linux only, like the fuzz targets.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "base/bytes.h"

namespace fastrec::testing {

class MemoryFile {
 public:
  MemoryFile() : descriptor_(mkostemp(path_.data(), O_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("cannot make a file in /dev/shm");
  }
  ~MemoryFile() {
    unlink(path_.c_str());
    close(descriptor_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Replaces the content. The file must not be mapped by an active reader.
  void write(Bytes content) {
    const auto size = static_cast<off_t>(content.size());
    if ((size < size_ && ftruncate(descriptor_, size) != 0) ||
        pwrite(descriptor_, content.data(), content.size(), 0) != size) {
      throw std::runtime_error("cannot write to memory");
    }
    size_ = size;
  }

  const std::string& path() const noexcept { return path_; }

 private:
  // Short enough for a std::string without an allocation: readers copy it often.
  std::string path_ = "/dev/shm/XXXXXX";
  int descriptor_;
  off_t size_ = 0;
};

}  // namespace fastrec::testing
