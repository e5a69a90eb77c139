// Runs: several pieces of bytes in one input, each after its two-byte size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace fastrec::testing {

inline constexpr std::size_t kMaxPieces = 4;

// Any bytes are a run: a size past the end means the rest of the input.
inline std::vector<Bytes> pieces_of(Bytes run) {
  std::vector<Bytes> pieces;
  pieces.reserve(kMaxPieces);
  while (run.size() >= 2 && pieces.size() < kMaxPieces) {
    const std::size_t claimed = load_le<std::uint16_t>(run.data());
    const std::size_t size = std::min(claimed, run.size() - 2);
    pieces.push_back(run.subspan(2, size));
    run = run.subspan(2 + size);
  }
  return pieces;
}

// Truncates pieces to 65535 bytes.
inline std::string run_of(const std::vector<std::string>& pieces) {
  std::string run;
  for (const std::string& piece : pieces) {
    const std::size_t size = std::min<std::size_t>(piece.size(), 0xffff);
    run += static_cast<char>(size & 0xff);
    run += static_cast<char>(size >> 8);
    run += std::string_view(piece).substr(0, size);
  }
  return run;
}

}  // namespace fastrec::testing
