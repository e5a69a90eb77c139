// Word: 16 bytes with the operators of an integer.
//
// A GCC and Clang vector, compiled to NEON or SSE2. Callers must not let an operation
// carry from one byte into the next.
#pragma once

#include <cstdint>
#include <cstring>

namespace fastrec {

using Word = std::uint64_t __attribute__((vector_size(16)));
inline bool is_zero(Word word) noexcept { return (word[0] | word[1]) == 0; }

inline Word load_word(const std::uint8_t* bytes) noexcept {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// `byte` 16 times.
inline Word repeated(std::uint8_t byte) noexcept {
  return Word{} + byte * std::uint64_t{0x0101010101010101};
}

}  // namespace fastrec
