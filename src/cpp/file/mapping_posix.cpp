#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "file/mapping.h"

namespace fastrec {

Mapping::Pages::Pages(const File& file) {
  const auto size = static_cast<std::size_t>(file.identity().size);
  if (size == 0) return;  // mmap() fails for a length of 0
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) throw IoError(errno, file.path());
  bytes = {static_cast<const std::uint8_t*>(address), size};
}

Mapping::Pages::~Pages() {
  if (!bytes.empty()) {
    ::munmap(const_cast<std::uint8_t*>(bytes.data()), bytes.size());
  }
}

void Mapping::will_need(std::uint64_t offset, std::uint64_t length) const noexcept {
  static const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t before = offset % page_bytes;  // madvise() needs a page boundary
  auto* address = const_cast<std::uint8_t*>(bytes().data()) + (offset - before);
  (void)::madvise(address, static_cast<std::size_t>(length + before), MADV_WILLNEED);
}

void Mapping::release(std::uint64_t offset, std::uint64_t length) const noexcept {
  static const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  // A page shared by two adjacent ranges is released with the second.
  const std::uint64_t begin = offset / page_bytes * page_bytes;
  const std::uint64_t end = (offset + length) / page_bytes * page_bytes;
  auto* address = const_cast<std::uint8_t*>(bytes().data()) + begin;
  // Zero pages of the guard become zeros again.
  (void)::madvise(address, static_cast<std::size_t>(end - begin), MADV_DONTNEED);
}

bool Mapping::is_resident() const noexcept {
  constexpr std::size_t kSamples = 64;
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t n_pages = (bytes().size() + page_bytes - 1) / page_bytes;
  const std::size_t n_samples = n_pages < kSamples ? n_pages : kSamples;
  std::size_t n_resident = 0;
  for (std::size_t i = 0; i < n_samples; ++i) {
    const std::size_t page = i * (n_pages / n_samples);
    auto* address = const_cast<std::uint8_t*>(bytes().data()) + page * page_bytes;
#if defined(__linux__)
    unsigned char state = 0;
#else
    char state = 0;
#endif
    if (::mincore(address, page_bytes, &state) != 0) return false;
    n_resident += state & 1;
  }
  return n_resident * 10 >= n_samples * 9;
}

}  // namespace fastrec
