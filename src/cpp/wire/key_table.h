// KeyTable: the key of a feature -> its number among the keys that a reader wants.
//
// An open-addressing table with linear probing. It is sparse, so an unwanted key nearly
// always meets an empty slot.
#pragma once

#include <bit>
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
    for (std::size_t slot = slot_of(hash(key));;
         slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot] == kNone || is_key(slots_[slot], key)) return slots_[slot];
    }
  }

  // The same, but `guess` is compared first: records tend to repeat their order.
  std::uint32_t find(Bytes key, std::uint32_t guess) const noexcept {
    return guess < keys_.size() && is_key(guess, key) ? guess : find(key);
  }

  // The number that the key of `n` bytes at `p` probably has. kNone proves that it has
  // none. The 8 bytes from `p` on are read whatever `n` is.
  std::uint32_t candidate(const std::uint8_t* p, std::size_t n) const noexcept {
    return slots_[slot_of(hash_words(p, n, load_le<std::uint64_t>(p)))];
  }

  // Every bit of the key reaches the top bits.
  static std::uint64_t hash(Bytes key) noexcept;

 private:
  static std::uint64_t hash_words(const std::uint8_t* p, std::size_t n,
                                  std::uint64_t first) noexcept;
  std::size_t slot_of(std::uint64_t hash) const noexcept {
    return static_cast<std::size_t>(hash >> shift_);
  }
  void place(std::uint32_t number);

  static constexpr std::size_t kSlotsPerKey = 8;
  std::vector<std::string> keys_;
  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(64, kNone);
  int shift_ = 64 - 6;  // leaves a number below slots_.size()
};

// `first` holds the first bytes of the key, and any bytes behind those. Keys of up to
// 16 bytes take no branch: their lengths vary too much to be predicted.
inline std::uint64_t KeyTable::hash_words(const std::uint8_t* p, std::size_t n,
                                          std::uint64_t first) noexcept {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;  // odd, bits without a pattern
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  static constexpr std::uint64_t kMasks[] = {0,          kAll >> 56, kAll >> 48,
                                             kAll >> 40, kAll >> 32, kAll >> 24,
                                             kAll >> 16, kAll >> 8,  kAll};
  std::uint64_t hash = n ^ (first & kMasks[n < 8 ? n : 8]);
  for (std::size_t i = 8; i + 8 < n; i += 8) {
    hash = std::rotl(hash * kFactor, 29) ^ load_le<std::uint64_t>(p + i);
  }
  hash += std::rotl(n > 8 ? load_le<std::uint64_t>(p + n - 8) : 0, 29);
  return hash * kFactor;
}

inline std::uint64_t KeyTable::hash(Bytes key) noexcept {
  const std::size_t n = key.size();
  const std::uint8_t* const p = key.data();
  std::uint64_t first = 0;
  if (n >= 8) {
    first = load_le<std::uint64_t>(p);
  } else if (n >= 4) {
    first = load_le<std::uint32_t>(p) | std::uint64_t{load_le<std::uint32_t>(p + n - 4)}
                                            << 8 * (n - 4);
  } else if (n > 0) {
    first = p[0] | std::uint64_t{p[n / 2]} << 8 * (n / 2) |
            std::uint64_t{p[n - 1]} << 8 * (n - 1);
  }
  return hash_words(p, n, first);
}

}  // namespace fastrec
