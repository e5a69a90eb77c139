// Mapping: an open file -> its bytes in memory, read-only and shared.
//
// The bytes are those of the file at the moment they are looked at: another process
// may change them between two looks. Whoever delivers data copies it first and
// verifies the copy (record/reader.h). If another process shortens the file, touching
// the lost pages raises SIGBUS.
#pragma once

#include "base/bytes.h"
#include "file/file.h"

namespace fastrec {

class Mapping {
 public:
  // Maps all of `file`, which may be closed afterwards. Throws IoError.
  explicit Mapping(const File& file);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  Bytes bytes() const noexcept { return bytes_; }

  // These bytes, which lie in the file, will be read soon. Advice: it returns at once
  // and cannot fail.
  void will_need(std::uint64_t offset, std::uint64_t length) const noexcept;

  // Whether nearly all pages are in memory already, judged by a sample of them.
  bool is_resident() const noexcept;

 private:
  Bytes bytes_;
};

}  // namespace fastrec
