// Prefetch: bytes that are read soon begin their way into the CPU's cache.
//
// Only a hint: nothing happens at an address that is not mapped, or mapped but not in
// memory yet.
#pragma once

#include <cstddef>

#if !defined(__GNUC__) && (defined(_M_X64) || defined(_M_IX86))
#include <xmmintrin.h>
#endif

namespace fastrec {

inline constexpr std::size_t kCacheLineBytes = 64;

inline void prefetch(const void* address) noexcept {
#if defined(__GNUC__)  // and Clang
  __builtin_prefetch(address);
#elif defined(_M_X64) || defined(_M_IX86)
  _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0);
#else
  (void)address;
#endif
}

}  // namespace fastrec
