#include "loader/permutation.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "base/random.h"

namespace fastrec {
namespace {

// The side of the smallest square with at least `n` cells.
std::uint64_t square_side(std::uint64_t n) {
  auto side = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (side * side < n) ++side;
  while ((side - 1) * (side - 1) >= n) --side;
  return side;
}

// Hashes `x` to [0, n) with both halves of a 128-bit product. `x` is small, so the
// first multiplication spreads it to the high bits: otherwise the high bits of the
// product, which decide the result, would be nearly linear in `x`.
inline std::uint64_t round_number(std::uint64_t x, std::uint64_t key,
                                  std::uint64_t n) noexcept {
  const std::uint64_t a = (x * 0x9e3779b97f4a7c15) ^ key, b = key | 1;
  return multiply_high(multiply_high(a, b) ^ (a * b), n);
}

inline std::uint64_t add_modulo(std::uint64_t x, std::uint64_t y,
                                std::uint64_t n) noexcept {
  const std::uint64_t sum = x + y;
  return sum >= n ? sum - n : sum;
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t key) : n_(n) {
  KeyStream keys(key);
  if (n <= kTableSize) {
    table_.resize(static_cast<std::size_t>(n));
    std::iota(table_.begin(), table_.end(), std::uint16_t{0});
    for (std::uint64_t left = n; left > 1; --left) {
      std::swap(table_[left - 1], table_[keys.below(left)]);
    }
    return;
  }
  n_rows_ = square_side(n);
  n_columns_ = (n + n_rows_ - 1) / n_rows_;
  inverse_ = ~std::uint64_t{0} / n_columns_;
  for (std::uint64_t& round_key : round_keys_) round_key = keys.next();
}

// Maps several numbers at once, to overlap their chains of dependent multiplications.
template <std::size_t kLanes>
void Permutation::network(std::uint64_t* numbers) const noexcept {
  std::uint64_t row[kLanes], column[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    row[i] = multiply_high(numbers[i], inverse_);  // may be one too small
    column[i] = numbers[i] - row[i] * n_columns_;
    const bool is_less = column[i] >= n_columns_;
    row[i] += is_less;
    column[i] -= is_less ? n_columns_ : 0;
  }
  for (unsigned round = 0; round < kRounds; round += 2) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      row[i] = add_modulo(row[i], round_number(column[i], round_keys_[round], n_rows_),
                          n_rows_);
      column[i] = add_modulo(column[i],
                             round_number(row[i], round_keys_[round + 1], n_columns_),
                             n_columns_);
    }
  }
  for (std::size_t i = 0; i < kLanes; ++i) {
    numbers[i] = row[i] * n_columns_ + column[i];
  }
}

void Permutation::apply(std::span<std::uint64_t> numbers) const noexcept {
  if (!table_.empty()) {
    for (std::uint64_t& number : numbers) number = table_[number];
    return;
  }
  constexpr std::size_t kLanes = 4;
  std::size_t i = 0;
  for (; i + kLanes <= numbers.size(); i += kLanes) network<kLanes>(&numbers[i]);
  for (; i < numbers.size(); ++i) network<1>(&numbers[i]);
  for (std::uint64_t& number : numbers) {
    while (number >= n_) network<1>(&number);
  }
}

}  // namespace fastrec
