#include "file/row_file.h"

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

}  // namespace

std::uint32_t copy_row(std::int64_t number, Bytes row, std::uint8_t* target) {
  return stored(crc32c_kernel().copy(seed_of(number), row, target));
}

void copy_rows(const RowFile& file, std::span<const std::int64_t> numbers,
               std::span<const std::int64_t> bounds, MutableBytes target,
               std::uint32_t* checksums) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto begin = static_cast<std::uint64_t>(bounds[2 * i]);
    const auto size = static_cast<std::size_t>(bounds[2 * i + 1] - bounds[2 * i]);
    const std::uint8_t* row = file.find(begin, size);
    checksums[i] = kAbsentRow;
    if (row == nullptr || size > target.size()) continue;
    checksums[i] = copy_row(numbers[i], {row, size}, target.data());
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

}  // namespace fastrec
