// Tests of RowTable.
//
// Goal: a batch has the fields of the rows that match their checksums, in the order in
// which they are asked for, and no other row. Method: a file of known rows, of which
// bytes are changed.

#include "batch/row_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "records.h"

namespace fastrec {
namespace {

// A table of rows of 4 + 1 + 8 + 4 + 3 bytes, whose rows 0 to 199 are stored, except 77.
class RowTableTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kFirst = 5, kRowBytes = 20;
  static constexpr std::int64_t kRows = 200, kAbsent = 77;

  RowTableTest() {
    content_ = "head:";
    for (std::int64_t number = 0; number < kRows; ++number) {
      std::string row(kRowBytes, '\0');
      for (std::size_t i = 4; i < kRowBytes; ++i) {
        row[i] = static_cast<char>(static_cast<std::size_t>(number) * 31 + i * 7);
      }
      content_ += row;
      if (number == kAbsent) continue;
      std::uint8_t* row_of_table =
          reinterpret_cast<std::uint8_t*>(content_.data()) + begin_of(number);
      std::uint8_t copy[kRowBytes];
      store_le(row_of_table, copy_row(number, {row_of_table + 4, kRowBytes - 4}, copy));
    }
    path_ = directory_.write("table", content_);
  }

  static std::size_t begin_of(std::int64_t number) {
    return kFirst + static_cast<std::size_t>(number) * kRowBytes;
  }

  testing::TemporaryDirectory directory_;
  std::string content_, path_;

  // Compares the fields of the rows `numbers`, of which `kept` must match.
  void check(const std::vector<std::int64_t>& numbers,
             const std::vector<std::int64_t>& kept) {
    const RowFile file(path_);
    const RowTable table{&file, kFirst, kRowBytes};
    const std::vector<RowField> fields = {{4, 1}, {5, 8}, {13, 4}, {17, 3}, {17, 0}};
    const auto is_kept = std::make_unique<bool[]>(numbers.size());
    const auto pool = std::make_shared<BlockPool>(1);
    const Batch batch = gather_rows(table, numbers, fields, pool.get(), is_kept.get());
    ASSERT_EQ(batch.n_rows, kept.size());
    ASSERT_EQ(batch.columns.size(), fields.size());
    std::vector<std::int64_t> found;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (is_kept[i]) found.push_back(numbers[i]);
    }
    EXPECT_EQ(found, kept);
    for (std::size_t field = 0; field < fields.size(); ++field) {
      const auto [offset, size] = fields[field];
      for (std::size_t i = 0; i < kept.size(); ++i) {
        EXPECT_EQ(as_text({batch.columns[field].values.data + i * size, size}),
                  content_.substr(begin_of(kept[i]) + offset, size));
      }
    }
  }
};

TEST_F(RowTableTest, FieldsAreCopiedFromRowsInAnyOrder) {
  check({}, {});
  check({3}, {3});
  check({kAbsent, -1, kRows, 1LL << 60, INT64_MIN}, {});
  std::vector<std::int64_t> numbers, kept;
  for (std::int64_t i = 0; i < 3 * kRows; ++i) {
    numbers.push_back(i * i % 211 - 1);
    const bool is_there =
        numbers.back() >= 0 && numbers.back() < kRows && numbers.back() != kAbsent;
    if (is_there) kept.push_back(numbers.back());
  }
  check(numbers, kept);
}

TEST_F(RowTableTest, ARowWithAChangedByteIsNotKept) {
  for (std::size_t i = 0; i < kRowBytes; ++i) {
    content_[begin_of(9) + i] ^= 4;
    path_ = directory_.write("changed", content_);
    check({8, 9, 10}, {8, 10});
    content_[begin_of(9) + i] ^= 4;
  }
}

TEST_F(RowTableTest, ARowInPlaceOfAnotherIsNotKept) {
  content_.replace(begin_of(9), kRowBytes, content_.substr(begin_of(8), kRowBytes));
  path_ = directory_.write("moved", content_);
  check({8, 9, 10}, {8, 10});
}

}  // namespace
}  // namespace fastrec
