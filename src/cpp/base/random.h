// Numbers that look random and are the same on every machine, for ever: the order of an
// epoch is made of them. Not for secrets.
#pragma once

#include <cstdint>

namespace fastrec {

// The upper half of the product, which is in [0, n) for any `x` if n is one factor.
inline std::uint64_t multiply_high(std::uint64_t x, std::uint64_t n) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{x} * n) >> 64);
}

// A bijection of 64 bits in which every bit of `x` reaches every bit of the result
// (David Stafford's variant 13 of the finalizer of MurmurHash3).
inline std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A stream of numbers that belong to a key: SplitMix64.
class KeyStream {
 public:
  explicit KeyStream(std::uint64_t key) noexcept : state_(key) {}

  std::uint64_t next() noexcept { return mix64(state_ += 0x9e3779b97f4a7c15); }

  // A number in [0, n), each with the same probability; `n` must not be 0. (Lemire,
  // "Fast random integer generation in an interval", 2019.)
  std::uint64_t below(std::uint64_t n) noexcept {
    std::uint64_t x = next();
    if (x * n < n) {
      const std::uint64_t n_uneven = (0 - n) % n;
      while (x * n < n_uneven) x = next();
    }
    return multiply_high(x, n);
  }

 private:
  std::uint64_t state_;
};

// A key for one purpose in one epoch. Purposes are told apart by `stream`. Each number
// is added to a mixture of those before it: seed 1 in epoch 2 is not seed 2 in epoch 1.
inline std::uint64_t key_of(std::uint64_t seed, std::uint64_t epoch,
                            std::uint64_t stream) noexcept {
  const std::uint64_t of_seed = KeyStream(seed).next();
  const std::uint64_t of_epoch = KeyStream(of_seed + epoch).next();
  return KeyStream(of_epoch + stream).next();
}

}  // namespace fastrec
