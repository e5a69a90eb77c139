// Mapping: an open file -> its bytes in memory, read-only and shared.
//
// Another process may change the bytes between two loads, so readers copy data first
// and verify the copy (record/reader.h). Lost pages become zeros, and n_kept() says
// which bytes were not lost (file/guard.h).
#pragma once

#include "base/bytes.h"
#include "file/file.h"
#include "file/guard.h"

namespace fastrec {

class Mapping {
 public:
  // Maps all of `file`, which may be closed afterwards. Throws IoError.
  explicit Mapping(const File& file) : pages_(file), guard_(pages_.bytes) {}

  Bytes bytes() const noexcept { return pages_.bytes; }

  // Of what was read of the mapping until now, only that in these first bytes was read
  // from the file: all of them, unless pages were lost.
  std::size_t n_kept() const noexcept { return guard_.n_kept(); }

  // These bytes, which lie in the file, will be read soon. Advice: it returns at once
  // and cannot fail.
  void will_need(std::uint64_t offset, std::uint64_t length) const noexcept;

  // The pages that end in these bytes leave the memory of this process: the system keeps
  // them, and maps them again when they are read.
  void release(std::uint64_t offset, std::uint64_t length) const noexcept;

  // Whether nearly all pages are in memory already, judged by a sample of them.
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
  GuardedRange guard_;  // ends before the pages do
};

}  // namespace fastrec
