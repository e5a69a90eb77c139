// Values: the list of a feature -> values of the dtype of a column.
//
// float32 values keep their bits. Integers are range-checked, never wrapped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "wire/plain.h"
#include "wire/walk.h"

namespace fastrec {

// Finds the list of `feature`, which must be of the kind of `spec` or have no kind. The
// offset of a fault is in `feature`.
Fault find_list_of(const ColumnSpec& spec, Bytes feature, JoinedMessages* joined,
                   ValueList* list);

// Decodes the `n` values that count_values() found in `list`, which holds floats or
// int64, to `target`, which is aligned for values of `dtype`. A fault has no offset.
Fault decode_numbers(const ValueList& list, std::size_t n, DType dtype,
                     std::uint8_t* target);

// Decodes a run of exactly `n` values of `kind`, which is int64 or float, to `target`,
// which is aligned for values of `dtype`. False if the run has another number of values
// or a value does not fit; `target` is then unspecified.
bool decode_plain_numbers(Bytes run, FeatureKind kind, std::size_t n, DType dtype,
                          std::uint8_t* target);

// Appends strings of less than 128 bytes each, from plain lists with slack
// (BytesWithSlack), to a column. Reserves room for a whole message once; commit() then
// appends what was written.
class ShortStrings {
 public:
  // Whether `message` is small enough to reserve room for all it may hold.
  static bool can_hold(Bytes message) noexcept { return message.size() <= 16 << 10; }

  ShortStrings(std::size_t column, Bytes message, BatchBuilder* batch)
      : values_(&batch->values(column)), ends_(&batch->string_ends(column)) {
    constexpr std::size_t kStringBytes = 2;  // of an empty string: tag and length
    first_ = next_ = values_->reserve(message.size() + kCopyBlockBytes);
    first_end_ = ends_->reserve(message.size() / kStringBytes * sizeof(std::int64_t));
    next_end_ = first_end_;
    n_bytes_before_ = static_cast<std::int64_t>(values_->size());
  }

  // Writes the strings of `list`, a part of the message. False unless all are short and
  // plain.
  bool append(Bytes list) noexcept {
    const std::uint8_t* const end = list.data() + list.size();
    for (const std::uint8_t* p = list.data(); p != end;) {
      const std::size_t n_bytes = p[1];
      if (p[0] != kTagOne || n_bytes >= 0x80 || end - p < std::ptrdiff_t(2 + n_bytes)) {
        return false;
      }
      copy_blocks(p + 2, n_bytes, next_);
      next_ += n_bytes;
      p += 2 + n_bytes;
      const std::int64_t string_end = n_bytes_before_ + (next_ - first_);
      std::memcpy(next_end_, &string_end, sizeof string_end);
      next_end_ += sizeof string_end;
    }
    return true;
  }

  // Writes the string of `n_bytes` at `string` if `mask` is all ones, but not if it is 0,
  // without a branch.
  void append_if(std::uint64_t mask, const std::uint8_t* string,
                 std::size_t n_bytes) noexcept {
    n_bytes &= mask;
    std::memcpy(next_, string, kCopyBlockBytes);
    if (n_bytes > kCopyBlockBytes) copy_blocks(string, n_bytes, next_);
    next_ += n_bytes;
    const std::int64_t string_end = n_bytes_before_ + (next_ - first_);
    std::memcpy(next_end_, &string_end, sizeof string_end);
    next_end_ += mask & sizeof string_end;
  }

  // The number of strings written.
  std::size_t size() const noexcept {
    return static_cast<std::size_t>(next_end_ - first_end_) / sizeof(std::int64_t);
  }

  void commit() noexcept {
    values_->advance(static_cast<std::size_t>(next_ - first_));
    ends_->advance(static_cast<std::size_t>(next_end_ - first_end_));
  }

 private:
  GrowingArray* values_;
  GrowingArray* ends_;
  std::uint8_t *first_, *next_;
  std::uint8_t *first_end_, *next_end_;
  std::int64_t n_bytes_before_;  // in the column
};

// Appends the values of `list`, which has slack (BytesWithSlack), to the ragged or
// padded `column`, and sets `*n` to their number. Appends nothing and returns false if
// the list does not have the plain form (wire/plain.h) or a value does not fit.
bool append_plain_list(const ColumnSpec& spec, std::size_t column, Bytes list,
                       BatchBuilder* batch, std::size_t* n);

// The float16 nearest to `value`, ties to even, as its bits.
std::uint16_t float16_bits(float value) noexcept;

// The bfloat16 nearest to `value`, ties to even, as its bits.
std::uint16_t bfloat16_bits(float value) noexcept;

}  // namespace fastrec
