// Choices: the bytes of an input -> choices about what a fuzz target does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/random.h"

namespace fastrec::testing {

// Choices made by bytes. After the last byte, always the first choice.
class Choices {
 public:
  explicit Choices(Bytes bytes) : bytes_(bytes) {}

  std::size_t below(std::size_t n) {
    if (bytes_.empty()) return 0;
    const std::size_t choice = bytes_.front() % n;
    bytes_ = bytes_.subspan(1);
    return choice;
  }
  bool yes() { return below(2) != 0; }

  // A number of up to 8 bytes.
  std::uint64_t number() {
    std::string bytes = take(below(9));
    bytes.resize(8);
    return load_le<std::uint64_t>(as_bytes(bytes).data());
  }

  // Any number: two bytes of the input determine all of its bits.
  std::uint64_t operator()() { return mix64(below(256) << 8 | below(256)); }

  bool is_over() const { return bytes_.empty(); }

  std::string take(std::size_t n) {
    const Bytes taken = bytes_.first(std::min(n, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return std::string(as_text(taken));
  }

 private:
  Bytes bytes_;
};

}  // namespace fastrec::testing
