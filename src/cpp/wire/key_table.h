// KeyTable: the key of a feature -> its number among the keys that a reader wants.
//
// An open-addressing table with linear probing. It is sparse, so an unwanted key nearly
// always meets an empty slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace fastrec {

class KeyTable {
 public:
  static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

  // Keys are numbered in the order of their first insertion. Returns the number.
  std::uint32_t insert(const std::string& key);

  std::size_t size() const noexcept { return keys_.size(); }
  const std::string& key(std::uint32_t number) const noexcept { return keys_[number]; }

  bool is_key(std::uint32_t number, Bytes key) const noexcept {
    const std::string& own = keys_[number];
    return own.size() == key.size() &&
           same_bytes(as_bytes(own).data(), key.data(), key.size());
  }

  // The number of `key`, or kNone.
  std::uint32_t find(Bytes key) const noexcept {
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot] == kNone || is_key(slots_[slot], key)) return slots_[slot];
    }
  }

  // The same, but `guess` is compared first: records tend to repeat their order.
  std::uint32_t find(Bytes key, std::uint32_t guess) const noexcept {
    return guess < keys_.size() && is_key(guess, key) ? guess : find(key);
  }

  // The number that `key` probably has. kNone proves that it has none.
  std::uint32_t candidate(Bytes key) const noexcept { return slots_[slot_of(key)]; }

  // Every bit of the key reaches the top bits.
  static std::uint64_t hash(Bytes key) noexcept;

 private:
  std::size_t slot_of(Bytes key) const noexcept {
    return static_cast<std::size_t>(hash(key) >> shift_);
  }
  void place(std::uint32_t number);

  static constexpr std::size_t kSlotsPerKey = 8;
  std::vector<std::string> keys_;
  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(64, kNone);
  int shift_ = 64 - 6;  // leaves a number below slots_.size()
};

inline std::uint64_t KeyTable::hash(Bytes key) noexcept {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;  // odd, bits without a pattern
  const std::size_t n = key.size();
  const std::uint8_t* const p = key.data();
  std::uint64_t hash = n;
  const auto mix = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 32;
  };
  if (n >= 8) {
    for (std::size_t i = 0; i + 8 < n; i += 8) mix(load_le<std::uint64_t>(p + i));
    mix(load_le<std::uint64_t>(p + n - 8));
  } else if (n >= 4) {
    mix(load_le<std::uint32_t>(p) | std::uint64_t{load_le<std::uint32_t>(p + n - 4)}
                                        << 32);
  } else if (n > 0) {
    mix(p[0] | std::uint64_t{p[n / 2]} << 8 | std::uint64_t{p[n - 1]} << 16);
  }
  return hash;
}

}  // namespace fastrec
