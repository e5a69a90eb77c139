#include "file/row_file.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/prefetch.h"
#include "crc32c/crc32c.h"

namespace fastrec {
namespace {

// The checksum of a row starts with that of its number.
std::uint32_t seed_of(std::int64_t number) {
  return crc32c({reinterpret_cast<const std::uint8_t*>(&number), sizeof number});
}

constexpr std::uint32_t stored(std::uint32_t crc) noexcept {
  return crc == kAbsentRow ? ~kAbsentRow : crc;
}

std::uint64_t begin_of(const FixedColumn& column, std::int64_t number) {
  return column.first + static_cast<std::uint64_t>(number) * column.row_bytes;
}

// Rows in random order miss the CPU's caches. Longer rows are read ahead by the CPU.
void prefetch_row(std::span<const FixedColumn> columns, std::int64_t number) {
  for (const FixedColumn& column : columns) {
    const std::uint8_t* row =
        column.file->find(begin_of(column, number), column.row_bytes);
    if (row != nullptr) prefetch(row);
  }
}

// Copies `size` bytes; most columns have numbers of 4 or 8 bytes.
void copy_small(const std::uint8_t* from, std::size_t size, std::uint8_t* target) {
  switch (size) {
    case 4:
      std::memcpy(target, from, 4);
      break;
    case 8:
      std::memcpy(target, from, 8);
      break;
    default:
      std::memcpy(target, from, size);
  }
}

// Copies row i of several columns through `row`, which has room for it, so that the
// bytes that are delivered are those that are verified.
std::uint32_t copy_row(std::span<const FixedColumn> columns, std::int64_t number,
                       std::size_t i, std::uint8_t* row) {
  std::uint8_t* next = row;
  for (const FixedColumn& column : columns) {
    const auto size = static_cast<std::size_t>(column.row_bytes);
    const std::uint8_t* from = column.file->find(begin_of(column, number), size);
    if (from == nullptr) return kAbsentRow;
    copy_small(from, size, next);
    if (column.target != nullptr) copy_small(next, size, column.target + i * size);
    next += size;
  }
  const Bytes copied(row, static_cast<std::size_t>(next - row));
  return stored(crc32c_kernel().extend(seed_of(number), copied));
}

}  // namespace

void copy_rows(const RowFile& file, std::span<const std::int64_t> numbers,
               std::span<const std::int64_t> bounds, MutableBytes target,
               std::uint32_t* checksums) {
  const Crc32cKernel& kernel = crc32c_kernel();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto begin = static_cast<std::uint64_t>(bounds[2 * i]);
    const auto size = static_cast<std::size_t>(bounds[2 * i + 1] - bounds[2 * i]);
    const std::uint8_t* row = file.find(begin, size);
    checksums[i] = kAbsentRow;
    if (row == nullptr || size > target.size()) continue;
    checksums[i] = stored(kernel.copy(seed_of(numbers[i]), {row, size}, target.data()));
    target = target.subspan(size);
  }
  file.check();
}

void sum_rows(Bytes data, std::span<const std::int64_t> numbers,
              std::span<const std::int64_t> bounds, std::uint32_t* checksums) {
  const Crc32cKernel& kernel = crc32c_kernel();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto begin = static_cast<std::size_t>(bounds[2 * i]);
    const auto end = static_cast<std::size_t>(bounds[2 * i + 1]);
    checksums[i] =
        stored(kernel.extend(seed_of(numbers[i]), data.subspan(begin, end - begin)));
  }
}

void copy_columns(std::span<const FixedColumn> columns,
                  std::span<const std::int64_t> numbers, std::uint32_t* checksums) {
  constexpr std::size_t kAhead = 8;  // rows
  const Crc32cKernel& kernel = crc32c_kernel();
  std::size_t row_bytes = 0;
  for (const FixedColumn& column : columns) {
    row_bytes += static_cast<std::size_t>(column.row_bytes);
  }
  std::vector<std::uint8_t> row(row_bytes);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i + kAhead < numbers.size() &&
        numbers[i + kAhead] != numbers[i + kAhead - 1] + 1) {
      prefetch_row(columns, numbers[i + kAhead]);
    }
    const FixedColumn& first = columns.front();
    if (columns.size() > 1 || first.target == nullptr) {
      checksums[i] = copy_row(columns, numbers[i], i, row.data());
      continue;
    }
    const auto size = static_cast<std::size_t>(first.row_bytes);
    const std::uint8_t* from = first.file->find(begin_of(first, numbers[i]), size);
    checksums[i] = from == nullptr
                       ? kAbsentRow
                       : stored(kernel.copy(seed_of(numbers[i]), {from, size},
                                            first.target + i * size));
  }
  for (const FixedColumn& column : columns) column.file->check();
}

}  // namespace fastrec
