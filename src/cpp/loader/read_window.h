// ReadWindow: where an epoch reads -> advice about the pages around that.
//
//   first | released | kept: kKeptBytes | read now | asked for: kAheadBytes |
//
// What comes next is read ahead explicitly: a system may read ahead too little of a
// mapping, or of a file that several threads read. Mapped bytes that were read are
// released, so that the resident memory of the process does not grow with the files:
// the page cache keeps them. All of it is advice, and never an error: bytes that are
// read after they were released come from the page cache again. That takes about 90 ns
// for each KiB, so an epoch in file order keeps the first kFirstBytes that it reads,
// which are those of the next epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>

#include "file/file_view.h"
#include "record/catalog.h"

namespace fastrec {

class ReadWindow {
 public:
  static constexpr std::uint64_t kAheadBytes = std::uint64_t{8} << 20;
  static constexpr std::uint64_t kFirstBytes = std::uint64_t{128} << 20;
  // Twice that is resident where one epoch ends and the next one begins.
  static constexpr std::uint64_t kKeptBytes = std::uint64_t{48} << 20;

  explicit ReadWindow(std::shared_ptr<FileTable> files) : files_(std::move(files)) {}

  // Files are read in their order, and now from byte `offset` of `file` on. Cheap where
  // that was asked for before. Any thread may call this.
  void read_ahead(std::size_t file, std::uint64_t offset);

  // These places are read now; `is_in_order` where an epoch from its first step on
  // reads the files in their order. Any thread may call this.
  void read(std::span<const Place> places, bool is_in_order);

 private:
  struct Range {
    std::uint64_t begin = 0, end = 0;
    std::shared_ptr<const FileView> view = nullptr;
  };

  void ask(std::size_t file, std::uint64_t begin, std::uint64_t end);
  void add(const Range& range, bool is_in_order);

  const std::shared_ptr<FileTable> files_;
  std::mutex asking_;  // guards the place up to which bytes were asked for
  std::size_t asked_file_ = 0;
  std::uint64_t asked_end_ = 0;
  std::mutex reading_;  // guards the rest
  std::deque<Range> ranges_;
  std::uint64_t n_bytes_ = 0;        // of the ranges
  std::uint64_t n_first_bytes_ = 0;  // that are never released
};

}  // namespace fastrec
