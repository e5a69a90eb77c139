// Words of 16 bytes, which the compiler turns into what the CPU has: NEON, or SSE2.

#include "base/word.h"
#include "decode/plan.h"
#include "wire/varint.h"

#define FASTREC_TARGET_PLAN

namespace fastrec::kernels {
namespace {

// 0xff in the first `n` of 32 places, from the place 64 - n on.
constexpr auto kFirst = [] {
  std::array<std::uint8_t, 64 + PlanEntry::kPartBytes> bytes{};
  for (std::size_t i = 0; i < 64; ++i) bytes[i] = 0xff;
  return bytes;
}();

inline bool is_part(const PlanEntry::Part& part, std::size_t n, const std::uint8_t* p,
                    std::uint8_t size) noexcept {
  const Word added = repeated(size);
  Word differ{};
  for (std::size_t at = 0; at < PlanEntry::kPartBytes; at += sizeof(Word)) {
    const Word expected =
        load_word(&part.header[at]) + (added & load_word(&part.lengths[at]));
    differ |= (load_word(p + at) ^ expected) & load_word(&kFirst[64 - n + at]);
  }
  return is_zero(differ);
}

inline bool read_number(std::uint64_t bytes, std::size_t n,
                        std::uint64_t* value) noexcept {
  return n - 1 < 8 && read_varint_of(bytes, n, value);
}

}  // namespace
}  // namespace fastrec::kernels

#include "decode/plan_kernel.h"

namespace fastrec::kernels {

constinit const PlanKernel kPlanPortable = {"portable", Isa::kPortable, run_entries,
                                            run_both, find_entries};

}  // namespace fastrec::kernels
