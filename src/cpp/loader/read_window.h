// ReadWindow: where an epoch reads -> advice about the pages around that.
//
//   released | kept: kKeptBytes | read now | asked for: kAheadBytes |
//
// What comes next is read ahead explicitly: a system may read ahead too little of a
// mapping, or of a file that several threads read. Mapped bytes that were read are
// released, so that the resident memory of the process does not grow with the files:
// the page cache keeps them. All of it is advice, and no error: bytes that are read
// after they were released come from the page cache again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "file/file_view.h"
#include "record/catalog.h"

namespace fastrec {

class ReadWindow {
 public:
  static constexpr std::uint64_t kAheadBytes = std::uint64_t{8} << 20;
  // Twice that is resident where an epoch ends and the next one begins.
  static constexpr std::uint64_t kKeptBytes = std::uint64_t{96} << 20;

  explicit ReadWindow(std::shared_ptr<FileTable> files) : files_(std::move(files)) {}

  // Files are read in their order, and now from byte `offset` of `file` on. Cheap where
  // that was asked for before. Any thread may call this.
  void read_ahead(std::size_t file, std::uint64_t offset);

  // These places are read now. Any thread may call this.
  void read(std::span<const Place> places);

 private:
  struct Range {
    std::uint64_t begin = 0, end = 0;
    std::shared_ptr<const FileView> view = nullptr;
  };

  void ask(std::size_t file, std::uint64_t begin, std::uint64_t end);
  void add(std::size_t file, std::uint64_t begin, std::uint64_t end);

  const std::shared_ptr<FileTable> files_;
  std::mutex asking_;  // guards the place up to which bytes were asked for
  std::size_t asked_file_ = 0;
  std::uint64_t asked_end_ = 0;
  std::mutex reading_;  // guards the rest
  std::deque<Range> ranges_;
  std::uint64_t n_bytes_ = 0;  // of the ranges
};

}  // namespace fastrec
