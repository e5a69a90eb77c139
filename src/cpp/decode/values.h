// Values: a list of a feature -> values in the dtype of a column.
//
// Floats keep their bits. Integers are converted with a check of their range, never
// wrapped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "wire/walk.h"

namespace fastrec {

// Decodes the `n` values that count_values() found in `list`, which holds floats or
// int64, to `target`, which is aligned for values of `dtype`. A fault has no offset.
Fault decode_numbers(const ValueList& list, std::size_t n, DType dtype,
                     std::uint8_t* target);

// Decodes a run that holds exactly `n` values of `kind`, which is int64 or float, to
// `target`, which is aligned for values of `dtype`. False if that is not what it holds,
// or if not all fit: `target` may then have been written to, and nothing is known.
bool decode_plain_numbers(Bytes run, FeatureKind kind, std::size_t n, DType dtype,
                          std::uint8_t* target);

// Adds the values of `feature` to `column`, whose rows have any number of them, and
// sets `*n` to how many they are. False if the feature does not have the plain form
// (wire/plain.h) and the kind that `spec` wants, or if not all fit: nothing has been
// added then, and nothing is known.
bool append_plain_values(const ColumnSpec& spec, std::size_t column, Bytes feature,
                         BatchBuilder* batch, std::size_t* n);

// The float16 nearest to `value`, ties to even, as its bits.
std::uint16_t float16_bits(float value) noexcept;

// The bfloat16 nearest to `value`, ties to even, as its bits.
std::uint16_t bfloat16_bits(float value) noexcept;

}  // namespace fastrec
