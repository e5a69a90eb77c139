// Guess: byte strings -> the array dtypes that they may hold.
//
// Any bytes are valid values of any dtype. A dtype is plausible if all values are zero
// or of a usual magnitude: floats neither tiny nor huge nor NaN, integers with unused
// upper bits. Random bytes read as floats almost always include unusual magnitudes.
// Long strings are sampled. features/guess.py chooses what to suggest.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/bytes.h"
#include "batch/schema.h"
#include "decode/tensor.h"

namespace fastrec {

// The evidence for one dtype.
struct DtypeEvidence {
  bool is_finite = true;  // and the upper bits of integers are unused
  // Every value fits a dtype of half the size: the rest is zeros, or copies of the
  // sign. An array of the smaller dtype would need such a value at every other index.
  bool is_extended = true;
  std::uint64_t n_nonzero = 0;
  std::uint64_t n_unusual = 0;  // of the nonzero values

  bool is_possible() const noexcept {
    return is_finite && 100 * n_unusual <= n_nonzero;
  }
  void merge(const DtypeEvidence& other) noexcept;
};

// The evidence from byte strings that may be the memory of arrays.
struct ArrayGuess {
  static constexpr DType kDtypes[] = {DType::kUint8,   DType::kInt64,   DType::kInt32,
                                      DType::kFloat64, DType::kFloat32, DType::kFloat16,
                                      DType::kBfloat16};

  std::array<DtypeEvidence, std::size(kDtypes)> dtypes;

  void add(Bytes string) noexcept;
  void merge(const ArrayGuess& other) noexcept;
};

// The evidence from byte strings that may be serialized tensors.
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
