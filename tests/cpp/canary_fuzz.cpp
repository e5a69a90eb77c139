// libFuzzer entry that must fail: it holds two mistakes on purpose.
//
// Goal: to prove that the set-up finds what it is for. If this target passes, the
// fuzzer does not search, or a sanitizer is off, and no other target proves anything.
// Method: behind one short word there is a read past the end of an allocation, for
// AddressSanitizer, and behind another a shift of a number by all its bits, for
// UndefinedBehaviorSanitizer. tests/support/fuzz_campaign.py says both words, and then
// has them searched for.

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/bytes.h"

namespace {

volatile unsigned sink;  // what is computed is used, so that nothing is left out

// Byte by byte, so that every right one is progress.
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
  return 0;
}
