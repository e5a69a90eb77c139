// Permutation: a keyed bijection of [0, n) that maps each number in O(1).
//
// Up to kTableSize numbers, it is a Fisher-Yates table: every permutation is equally
// likely. Above, it is a Feistel network over a rectangle of slightly more than n
// cells,
//
//   number = row * n_columns + column
//   row    = (row + F1(column)) mod n_rows
//   column = (column + F2(row)) mod n_columns
//   row    = (row + F3(column)) mod n_rows       ... kRounds in all
//
// where each F is a hash with its own key. A round adds a function of the other
// coordinate, so it is invertible, and the network is a bijection of the rectangle.
// Results of n and more go through the network again ("cycle walking"). That is rare:
// the rectangle has less than 2 * sqrt(n) + 1 surplus cells.
//
// Users resume in the middle of an epoch, so a permutation must never change
// (docs/determinism.md).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace fastrec {

class Permutation {
 public:
  static constexpr std::uint64_t kTableSize = 4096;

  // `n` must be at most 2^63.
  Permutation(std::uint64_t n, std::uint64_t key);

  std::uint64_t size() const noexcept { return n_; }

  // Replaces each number, all below size(), by its image.
  void apply(std::span<std::uint64_t> numbers) const noexcept;

  std::uint64_t operator()(std::uint64_t number) const noexcept {
    apply({&number, 1});
    return number;
  }

 private:
  static constexpr unsigned kRounds = 6;

  template <std::size_t kLanes>
  void network(std::uint64_t* numbers) const noexcept;

  std::uint64_t n_;
  std::vector<std::uint16_t> table_;  // if n_ <= kTableSize
  std::uint64_t n_rows_ = 1;
  std::uint64_t n_columns_ = 1;
  std::uint64_t inverse_ = 0;  // 2^64 / n_columns_, rounded down
  std::array<std::uint64_t, kRounds> round_keys_{};
};

}  // namespace fastrec
