// Guess: byte strings -> the dtypes of arrays whose memory they may be.
//
// Any bytes are values of any dtype. A dtype is possible if all values are zero or of a
// usual size: floats neither tiny nor huge nor NaN, integers with free upper bits.
// Other bytes read as floats are nearly never all of a usual size. A long string is
// sampled.
//
// A guess is an observation. What is suggested for it is decided in inference.py.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/bytes.h"
#include "batch/schema.h"
#include "decode/tensor.h"

namespace fastrec {

// What speaks for a dtype.
struct DtypeEvidence {
  bool is_finite = true;  // and integers have free upper bits
  // In each value, the half that values of half the size lack is trivial: a fraction of
  // zeros, or copies of the sign. An array of the smaller dtype would have such a value
  // at every other place.
  bool is_extended = true;
  std::uint64_t n_nonzero = 0;
  std::uint64_t n_unusual = 0;  // of these

  bool is_possible() const noexcept {
    return is_finite && 100 * n_unusual <= n_nonzero;
  }
  void merge(const DtypeEvidence& other) noexcept;
};

// What was seen of byte strings that may be the memory of arrays.
struct ArrayGuess {
  static constexpr DType kDtypes[] = {DType::kUint8,   DType::kInt64,   DType::kInt32,
                                      DType::kFloat64, DType::kFloat32, DType::kFloat16,
                                      DType::kBfloat16};

  std::array<DtypeEvidence, std::size(kDtypes)> dtypes;

  void add(Bytes string) noexcept;
  void merge(const ArrayGuess& other) noexcept;
};

// What was seen of byte strings that may be serialized tensors.
struct TensorGuess {
  bool is_possible = true;
  bool is_uniform = true;  // one dtype and shape
  std::uint64_t n_seen = 0;
  std::uint32_t dtype = 0;
  std::vector<std::int64_t> shape;

  void add(Bytes string);
  void merge(const TensorGuess& other);
};

}  // namespace fastrec
