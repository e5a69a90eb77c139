// Prefetch: a hint to load an address into the CPU's cache.
//
// It has no effect at an address that is not mapped or not resident.
#pragma once

#include <cstddef>

namespace fastrec {

inline constexpr std::size_t kCacheLineBytes = 64;

inline void prefetch(const void* address) noexcept {
  __builtin_prefetch(address);
  // A side effect: GCC drops calls of functions without one.
  asm volatile("");
}

}  // namespace fastrec
