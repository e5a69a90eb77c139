// libFuzzer entry that must fail: it contains four deliberate bugs.
//
// Goal: verify the fuzzing setup. If this target passes, the fuzzer does not search or
// a sanitizer is off. Method: one short word triggers a read past the end of an
// allocation, for AddressSanitizer; another triggers a shift by the width of the type,
// for UndefinedBehaviorSanitizer; the others leak memory, or allocate too much of it.
// campaigns/fuzz.py passes all words, and then lets the fuzzer find one.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/bytes.h"

namespace {

// Keep the compiler from removing the bugs.
volatile unsigned sink;
void* volatile allocated;

// Compares byte by byte, so that every right byte increases the coverage.
bool begins_with(fastrec::Bytes input, std::string_view word) {
  if (input.size() < word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (input[i] != static_cast<std::uint8_t>(word[i])) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fastrec::Bytes input(data, size);
  if (begins_with(input, "heap")) {
    const auto one = std::make_unique<unsigned[]>(1);
    sink = one[size];
  }
  if (begins_with(input, "bits")) sink = 1u << (size + 28);
  if (begins_with(input, "leak")) {
    for (int i = 0; i < 2; ++i) allocated = new char[100];
    allocated = nullptr;
  }
  if (begins_with(input, "huge")) {
    allocated = new char[std::size_t{300} << 20];
    delete[] static_cast<char*>(allocated);
  }
  return 0;
}
