// Prefetch: bytes that are read soon begin their way into the CPU's cache.
//
// Only a hint: nothing happens at an address that is not mapped, or mapped but not in
// memory yet.
#pragma once

#include <cstddef>

namespace fastrec {

inline constexpr std::size_t kCacheLineBytes = 64;

inline void prefetch(const void* address) noexcept { __builtin_prefetch(address); }

}  // namespace fastrec
