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

// `min` and `max` are the exponents of usual magnitudes.
template <typename Bits>
void examine_floats(Bytes bytes, int n_mantissa, int bias, int min, int max,
                    Bits extension, DtypeEvidence* seen) noexcept {
  const int exponents = 2 * bias + 1;
  for (std::size_t i = 0; i + sizeof(Bits) <= bytes.size(); i += sizeof(Bits)) {
    const Bits bits = load_le<Bits>(bytes.data() + i);
    if ((bits & extension) != 0 || extension == 0) seen->is_extended = false;
    if (static_cast<Bits>(bits << 1) == 0) continue;  // 0.0 or -0.0
    const int exponent = static_cast<int>(bits >> n_mantissa) & exponents;
    if (exponent == exponents) {
      seen->is_finite = false;
      return;
    }
    ++seen->n_nonzero;
    if (exponent - bias < min || exponent - bias > max) ++seen->n_unusual;
  }
}

template <typename Int, typename Half>
void examine_integers(Bytes bytes, int n_used, DtypeEvidence* seen) noexcept {
  using Bits = std::make_unsigned_t<Int>;
  for (std::size_t i = 0; i + sizeof(Int) <= bytes.size(); i += sizeof(Int)) {
    const auto value = static_cast<Int>(load_le<Bits>(bytes.data() + i));
    if (value != static_cast<Half>(value)) seen->is_extended = false;
    const Int beyond = static_cast<Int>(value >> n_used);
    if (beyond != 0 && beyond != -1) {
      seen->is_finite = false;
      return;
    }
    seen->n_nonzero += value != 0;
  }
}

}  // namespace

void DtypeEvidence::merge(const DtypeEvidence& other) noexcept {
  is_finite = is_finite && other.is_finite;
  is_extended = is_extended && other.is_extended;
  n_nonzero += other.n_nonzero;
  n_unusual += other.n_unusual;
}

void ArrayGuess::add(Bytes string) noexcept {
  const auto rule_out = [&](std::size_t dtype, std::size_t item_bytes) {
    if (string.size() % item_bytes != 0) dtypes[dtype].is_finite = false;
  };
  for (const std::size_t dtype : {kInt64, kFloat64}) rule_out(dtype, 8);
  for (const std::size_t dtype : {kInt32, kFloat32}) rule_out(dtype, 4);
  for (const std::size_t dtype : {kFloat16, kBfloat16}) rule_out(dtype, 2);

  const bool is_short = string.size() <= kPieces * kPieceBytes;
  for (std::size_t i = 0; i < (is_short ? 1 : kPieces); ++i) {
    Bytes piece = string;
    if (!is_short) {
      const std::size_t begin = (string.size() - kPieceBytes) / (kPieces - 1) * i;
      piece = string.subspan(begin / 8 * 8, kPieceBytes);
    }
    dtypes[kUint8].n_nonzero += static_cast<std::uint64_t>(
        std::count_if(piece.begin(), piece.end(), [](auto byte) { return byte != 0; }));
    const auto examine = [&](std::size_t dtype, auto&& examine_values) {
      if (dtypes[dtype].is_finite) examine_values(&dtypes[dtype]);
    };
    // Usual integers: up to 2^47 (times in ms) and 2^20 (word indices).
    examine(kInt64, [&](DtypeEvidence* seen) {
      examine_integers<std::int64_t, std::int32_t>(piece, 47, seen);
    });
    examine(kInt32, [&](DtypeEvidence* seen) {
      examine_integers<std::int32_t, std::int16_t>(piece, 20, seen);
    });
    examine(kFloat64, [&](DtypeEvidence* seen) {
      examine_floats<std::uint64_t>(piece, 52, 1023, -64, 64, 0xffffffff, seen);
    });
    examine(kFloat32, [&](DtypeEvidence* seen) {
      examine_floats<std::uint32_t>(piece, 23, 127, -40, 40, 0xffff, seen);
    });
    examine(kFloat16, [&](DtypeEvidence* seen) {
      examine_floats<std::uint16_t>(piece, 10, 15, -14, 10, 0, seen);
    });
    examine(kBfloat16, [&](DtypeEvidence* seen) {
      examine_floats<std::uint16_t>(piece, 7, 127, -40, 40, 0, seen);
    });
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
