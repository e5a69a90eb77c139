// Random: pseudo-random numbers that never change, on any machine or in any version.
//
// They define the order of an epoch. Not for cryptography.
#pragma once

#include <cstdint>

namespace fastrec {

// The upper half of the 128-bit product: maps any `x` to [0, n).
inline std::uint64_t multiply_high(std::uint64_t x, std::uint64_t n) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{x} * n) >> 64);
}

// A bijection of 64 bits in which every bit of `x` affects every bit of the result:
// David Stafford's variant 13 of the MurmurHash3 finalizer.
inline std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// SplitMix64: the stream of random numbers of a key.
class KeyStream {
 public:
  explicit KeyStream(std::uint64_t key) noexcept : state_(key) {}

  std::uint64_t next() noexcept { return mix64(state_ += 0x9e3779b97f4a7c15); }

  // A uniform number in [0, n); `n` must not be 0. Source: D. Lemire, "Fast random
  // integer generation in an interval", 2019.
  std::uint64_t below(std::uint64_t n) noexcept {
    std::uint64_t x = next();
    if (x * n < n) {
      const std::uint64_t n_rejected = (0 - n) % n;
      while (x * n < n_rejected) x = next();
    }
    return multiply_high(x, n);
  }

 private:
  std::uint64_t state_;
};

// The key of one purpose, named by `stream`, in one epoch. Each number is added to a
// hash of those before it, so seed 1 in epoch 2 differs from seed 2 in epoch 1.
inline std::uint64_t key_of(std::uint64_t seed, std::uint64_t epoch,
                            std::uint64_t stream) noexcept {
  const std::uint64_t of_seed = KeyStream(seed).next();
  const std::uint64_t of_epoch = KeyStream(of_seed + epoch).next();
  return KeyStream(of_epoch + stream).next();
}

}  // namespace fastrec
