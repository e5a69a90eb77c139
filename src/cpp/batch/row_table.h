// RowTable: rows of fixed fields, side by side in a file -> the columns of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "batch/column.h"
#include "batch/slab.h"
#include "file/row_file.h"

namespace fastrec {

// Row i begins at `first + i * row_bytes`, with the checksum of its other bytes.
struct RowTable {
  static constexpr std::size_t kChecksumBytes = sizeof(std::uint32_t);

  const RowFile* file = nullptr;
  std::uint64_t first = 0;
  std::size_t row_bytes = kChecksumBytes;
};

// [offset, offset + size) of every row.
struct RowField {
  std::size_t offset = 0, size = 0;
};

// Returns a column of each field, with the rows `numbers` that match their checksums.
// Sets is_kept[i] for each number.
Batch gather_rows(const RowTable& table, std::span<const std::int64_t> numbers,
                  std::span<const RowField> fields, BlockPool* pool, bool* is_kept);

}  // namespace fastrec
