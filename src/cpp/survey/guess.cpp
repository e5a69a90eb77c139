#include "survey/guess.h"

#include <algorithm>
#include <type_traits>

namespace fastrec {
namespace {

// A long string is sampled in this many evenly spaced pieces.
constexpr std::size_t kPieces = 16;
constexpr std::size_t kPieceBytes = 64;

// Indices in ArrayGuess::kDtypes.
enum : std::size_t { kUint8, kInt64, kInt32, kFloat64, kFloat32, kFloat16, kBfloat16 };

// These functions add the values of a piece of a string, while all are finite. `min` and
// `max` are the exponents of usual magnitudes.
template <typename Bits>
void examine_floats(Bytes bytes, int n_mantissa, int bias, int min, int max,
                    Bits extension, DtypeEvidence* seen) noexcept {
  const int exponents = 2 * bias + 1;
  for (std::size_t i = 0; seen->is_finite && i < bytes.size(); i += sizeof(Bits)) {
    const Bits bits = load_le<Bits>(bytes.data() + i);
    if ((bits & extension) != 0 || extension == 0) seen->is_extended = false;
    if (static_cast<Bits>(bits << 1) == 0) continue;  // 0.0 or -0.0
    const int exponent = static_cast<int>(bits >> n_mantissa) & exponents;
    seen->is_finite = exponent != exponents;
    ++seen->n_nonzero;
    if (exponent - bias < min || exponent - bias > max) ++seen->n_unusual;
  }
}

template <typename Int, typename Half>
void examine_integers(Bytes bytes, int n_used, DtypeEvidence* seen) noexcept {
  using Bits = std::make_unsigned_t<Int>;
  for (std::size_t i = 0; seen->is_finite && i < bytes.size(); i += sizeof(Int)) {
    const auto value = static_cast<Int>(load_le<Bits>(bytes.data() + i));
    if (value != static_cast<Half>(value)) seen->is_extended = false;
    const Int beyond = static_cast<Int>(value >> n_used);
    seen->is_finite = beyond == 0 || beyond == -1;
    seen->n_nonzero += value != 0;
  }
}

void add_piece(Bytes piece, ArrayGuess* guess) noexcept {
  auto& dtypes = guess->dtypes;
  dtypes[kUint8].n_nonzero += piece.size() - static_cast<std::size_t>(std::count(
                                                 piece.begin(), piece.end(), 0));
  // Usual integers: up to 2^47 (times in ms) and 2^20 (word indices).
  examine_integers<std::int64_t, std::int32_t>(piece, 47, &dtypes[kInt64]);
  examine_integers<std::int32_t, std::int16_t>(piece, 20, &dtypes[kInt32]);
  examine_floats<std::uint64_t>(piece, 52, 1023, -64, 64, 0xffffffff,
                                &dtypes[kFloat64]);
  examine_floats<std::uint32_t>(piece, 23, 127, -40, 40, 0xffff, &dtypes[kFloat32]);
  examine_floats<std::uint16_t>(piece, 10, 15, -14, 10, 0, &dtypes[kFloat16]);
  examine_floats<std::uint16_t>(piece, 7, 127, -40, 40, 0, &dtypes[kBfloat16]);
}

}  // namespace

void DtypeEvidence::merge(const DtypeEvidence& other) noexcept {
  is_finite = is_finite && other.is_finite;
  is_extended = is_extended && other.is_extended;
  n_nonzero += other.n_nonzero;
  n_unusual += other.n_unusual;
}

void ArrayGuess::add(Bytes string) noexcept {
  constexpr std::size_t kItemBytes[] = {1, 8, 4, 8, 4, 2, 2};  // of kDtypes
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    if (string.size() % kItemBytes[i] != 0) dtypes[i].is_finite = false;
  }
  if (string.size() <= kPieces * kPieceBytes) return add_piece(string, this);
  for (std::size_t i = 0; i < kPieces; ++i) {
    const std::size_t begin = (string.size() - kPieceBytes) / (kPieces - 1) * i;
    add_piece(string.subspan(begin / 8 * 8, kPieceBytes), this);
  }
}

void ArrayGuess::merge(const ArrayGuess& other) noexcept {
  for (std::size_t i = 0; i < dtypes.size(); ++i) dtypes[i].merge(other.dtypes[i]);
}

void TensorGuess::add(Bytes string) {
  TensorReader reader;
  TensorGuess found;
  found.n_seen = 1;
  found.is_possible = !reader.read(string);
  found.dtype = reader.dtype();
  found.shape = reader.shape();
  merge(found);
}

void TensorGuess::merge(const TensorGuess& other) {
  if (other.n_seen == 0) return;
  is_possible = is_possible && other.is_possible;
  is_uniform = is_uniform && other.is_uniform;
  if (n_seen == 0) {
    dtype = other.dtype;
    shape = other.shape;
  } else if (dtype != other.dtype || shape != other.shape) {
    is_uniform = false;
  }
  n_seen += other.n_seen;
}

}  // namespace fastrec
