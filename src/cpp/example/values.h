// Values: a list of a feature -> numbers in the dtype of a column.
//
// Floats keep their bits. Integers are converted with a check of their range, never
// wrapped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/schema.h"
#include "example/walk.h"

namespace fastrec {

// Decodes the `n` values that count_values() found in `list`, which holds floats or
// int64, to `target`, which is aligned for values of `dtype`. A fault has no offset.
Fault decode_numbers(const ValueList& list, std::size_t n, DType dtype,
                     std::uint8_t* target);

// Decodes a run that holds exactly `n` values of a dtype that needs no conversion,
// int64, int32 or float32, to `target`, which is aligned for them. False if that is not
// what it holds or asks for: `target` may then have been written to, and nothing is
// known.
bool decode_plain_numbers(Bytes run, std::size_t n, DType dtype, std::uint8_t* target);

// The float16 nearest to `value`, ties to even, as its bits.
std::uint16_t float16_bits(float value) noexcept;

// The bfloat16 nearest to `value`, ties to even, as its bits.
std::uint16_t bfloat16_bits(float value) noexcept;

}  // namespace fastrec
