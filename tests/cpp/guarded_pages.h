// GuardedPages: memory between two inaccessible pages, so that an over-read or
// over-write kills the process.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "base/bytes.h"

namespace fastrec::testing {

class GuardedPages {
 public:
  explicit GuardedPages(std::size_t min_size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t size = (min_size + page - 1) / page * page;
    mapped_size_ = size + 2 * page;
    mapped_ = mmap(nullptr, mapped_size_, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::runtime_error("mmap failed");
    auto* readable = static_cast<std::uint8_t*>(mapped_) + page;
    if (mprotect(readable, size, PROT_READ | PROT_WRITE) != 0) {
      munmap(mapped_, mapped_size_);
      throw std::runtime_error("mprotect failed");
    }
    bytes_ = {readable, size};
  }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  ~GuardedPages() { munmap(mapped_, mapped_size_); }

  MutableBytes bytes() const { return bytes_; }

 private:
  void* mapped_;
  std::size_t mapped_size_;
  MutableBytes bytes_;
};

}  // namespace fastrec::testing
