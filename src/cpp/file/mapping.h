// Mapping: an open file -> its bytes in memory, read-only and shared.
//
// Another process may modify the bytes between two loads, so readers copy the data
// first and verify the copy (record/reader.h). Lost pages become zeros outside of the
// first n_valid() bytes (file/guard.h).
#pragma once

#include "base/bytes.h"
#include "file/file.h"
#include "file/guard.h"

namespace fastrec {

class Mapping {
 public:
  // Maps all of `file`, which the caller may then close. Throws IoError.
  explicit Mapping(const File& file) : pages_(file), guard_(pages_.bytes) {}

  Bytes bytes() const noexcept { return pages_.bytes; }

  // See GuardedRange::n_valid().
  std::size_t n_valid() const noexcept { return guard_.n_valid(); }

  // Hints that these bytes, which must be in the file, will be read soon. Does not
  // block.
  void will_need(std::uint64_t offset, std::uint64_t length) const noexcept;

  // Unmaps the pages that end in these bytes. They stay in the page cache, and the next
  // read maps them again.
  void release(std::uint64_t offset, std::uint64_t length) const noexcept;

  // Whether nearly all pages are in memory, estimated from a sample.
  bool is_resident() const noexcept;

 private:
  struct Pages {
    explicit Pages(const File& file);
    ~Pages();
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    Bytes bytes;
  };

  Pages pages_;
  GuardedRange guard_;  // destroyed before the pages
};

}  // namespace fastrec
