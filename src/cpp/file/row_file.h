// RowFile: a mapped file of rows -> copies of its rows, with their checksums.
//
// A row that a killed process or a full disk left incomplete, or that a disk changed, does
// not match its checksum, and neither does a row that was read in place of another: the
// checksum starts with the row's number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "file/file_view.h"

namespace fastrec {

// The checksum of an absent row; the checksum of a row is never 0.
inline constexpr std::uint32_t kAbsentRow = 0;

class RowFile {
 public:
  // Throws IoError.
  explicit RowFile(std::string path) : view_(std::move(path), Io::kMmap) {}

  // [begin, begin + size) of the file, or nullptr if it is not inside of the file.
  const std::uint8_t* find(std::uint64_t begin, std::uint64_t size) const noexcept {
    const bool is_inside = begin <= view_.size() && size <= view_.size() - begin;
    return is_inside ? view_.mapping()->bytes().data() + begin : nullptr;
  }

  // Throws Error if a row that was copied has lost pages.
  void check() const { view_.check_valid(0, view_.size()); }

 private:
  FileView view_;
};

// Copies the bytes of row `number`; returns their checksum.
std::uint32_t copy_row(std::int64_t number, Bytes row, std::uint8_t* target);

// Row i of several is [bounds[2 * i], bounds[2 * i + 1]), in bytes. Both functions store
// one checksum for each row. The first copies the rows one after another; rows that are
// not inside of the file, or for which no room is left, are absent.
void copy_rows(const RowFile& file, std::span<const std::int64_t> numbers,
               std::span<const std::int64_t> bounds, MutableBytes target,
               std::uint32_t* checksums);
void sum_rows(Bytes data, std::span<const std::int64_t> numbers,
              std::span<const std::int64_t> bounds, std::uint32_t* checksums);

}  // namespace fastrec
