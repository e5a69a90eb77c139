// MemoryFile: bytes -> a path that opens as a regular file, none of it on a disk.
//
// Linux only, as the fuzz targets are.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "base/bytes.h"

namespace fastrec::testing {

class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fastrec", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("memfd_create failed");
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // The file is then `content`. Nobody may have it mapped who still reads it.
  void write(Bytes content) {
    const auto size = static_cast<off_t>(content.size());
    if (ftruncate(descriptor_, size) != 0 ||
        pwrite(descriptor_, content.data(), content.size(), 0) != size) {
      throw std::runtime_error("cannot write to memory");
    }
  }

  const std::string& path() const noexcept { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace fastrec::testing
