#include "batch/row_table.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/prefetch.h"
#include "batch/placement.h"

namespace fastrec {
namespace {

// Rows to copy and verify at once, before their fields are copied from the CPU's cache.
constexpr std::size_t kChunkRows = 64, kChunkBytes = std::size_t{16} << 10;

// Of a row; the CPU itself reads longer rows ahead.
constexpr std::size_t kPrefetchedBytes = 512, kPrefetchedRows = 8;

const std::uint8_t* find_row(const RowTable& table, std::int64_t number) {
  if (number < 0) return nullptr;
  const std::uint64_t begin = static_cast<std::uint64_t>(number) * table.row_bytes;
  return table.file->find(table.first + begin, table.row_bytes);
}

// Rows in random order miss the CPU's caches.
void prefetch_row(const RowTable& table, std::int64_t number) {
  const std::uint8_t* row = find_row(table, number);
  if (row == nullptr) return;
  const std::size_t size = std::min(table.row_bytes, kPrefetchedBytes);
  for (std::size_t i = 0; i < size; i += kCacheLineBytes) prefetch(row + i);
}

// Copies a row without its checksum; returns whether it matches.
bool copy_fields(const RowTable& table, std::int64_t number, std::uint8_t* target) {
  const std::uint8_t* row = find_row(table, number);
  if (row == nullptr) return false;
  const auto checksum = load_le<std::uint32_t>(row);
  if (checksum == kAbsentRow) return false;
  const Bytes rest(row + RowTable::kChecksumBytes,
                   table.row_bytes - RowTable::kChecksumBytes);
  return checksum == copy_row(number, rest, target);
}

// Copies `size` bytes of each of `n` rows, `stride` bytes apart. `size` may be constant.
void copy_field(const std::uint8_t* from, std::size_t stride, std::size_t n, auto size,
                std::uint8_t* target) {
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(target + i * size, from + i * stride, size);
  }
}

template <std::size_t kSize>
using Constant = std::integral_constant<std::size_t, kSize>;

// A batch without rows, and with room for `n_rows`.
Batch batch_of(std::size_t n_rows, std::span<const RowField> fields, BlockPool* pool) {
  Placement placement(pool->shared_from_this());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    placement.add(i, n_rows * fields[i].size);
  }
  placement.divide();
  Batch batch;
  for (const std::size_t n_bytes : placement.block_bytes()) {
    batch.blocks.push_back(pool->take(n_bytes));
  }
  for (const Placement::Place& place : placement.places()) {
    std::uint8_t* const begin = batch.blocks[place.block]->data();
    batch.columns.emplace_back().values = {begin + place.offset, place.block};
  }
  return batch;
}

}  // namespace

Batch gather_rows(const RowTable& table, std::span<const std::int64_t> numbers,
                  std::span<const RowField> fields, BlockPool* pool, bool* is_kept) {
  Batch batch = batch_of(numbers.size(), fields, pool);
  const std::size_t stride = table.row_bytes - RowTable::kChecksumBytes;
  const std::size_t chunk_rows =
      std::clamp<std::size_t>(kChunkBytes / table.row_bytes, 1, kChunkRows);
  std::vector<std::uint8_t> chunk(chunk_rows * stride);
  for (std::size_t i = 0; i < numbers.size();) {
    const std::size_t end = std::min(i + chunk_rows, numbers.size());
    std::size_t n = 0;  // rows in the chunk
    for (; i < end; ++i) {
      const std::size_t ahead = i + kPrefetchedRows;
      if (ahead < numbers.size() && numbers[ahead] - 1 != numbers[ahead - 1]) {
        prefetch_row(table, numbers[ahead]);
      }
      is_kept[i] = copy_fields(table, numbers[i], chunk.data() + n * stride);
      n += is_kept[i];
    }
    for (std::size_t column = 0; column < fields.size(); ++column) {
      const RowField& field = fields[column];
      const std::uint8_t* from = chunk.data() + field.offset - RowTable::kChecksumBytes;
      std::uint8_t* target =
          batch.columns[column].values.data + batch.n_rows * field.size;
      if (field.size == 8) {
        copy_field(from, stride, n, Constant<8>(), target);
      } else if (field.size == 4) {
        copy_field(from, stride, n, Constant<4>(), target);
      } else {
        copy_field(from, stride, n, field.size, target);
      }
    }
    batch.n_rows += n;
  }
  table.file->check();
  return batch;
}

}  // namespace fastrec
