// Mapping: an open file -> its bytes in memory, read-only and shared.
//
// The bytes are those of the file at the moment they are looked at: another process
// may change them between two looks. Whoever delivers data copies it first and
// verifies the copy (record/reader.h). Pages that the file loses become zeros, and
// n_kept() tells them apart (file/guard.h).
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

  // The pages that end in these bytes leave the memory of this process: the system
  // keeps them, and maps them again when they are read.
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
