// As plan_avx2.cpp, with comparisons that give a mask.

#include "decode/plan.h"
#include "wire/varint.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FASTREC_TARGET_PLAN FASTREC_TARGET("avx512f,avx512bw,avx512vl,avx2,bmi,bmi2")

namespace fastrec::kernels {
namespace {

FASTREC_TARGET_PLAN
inline __m256i load(const std::uint8_t* bytes) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

FASTREC_TARGET_PLAN
inline bool is_part(const PlanEntry::Part& part, std::size_t n, const std::uint8_t* p,
                    std::uint8_t size) noexcept {
  const __m256i added = _mm256_and_si256(_mm256_set1_epi8(static_cast<char>(size)),
                                         load(part.lengths.data()));
  const __m256i expected = _mm256_add_epi8(load(part.header.data()), added);
  const auto differ = _mm256_cmpneq_epi8_mask(load(p), expected);
  return _bzhi_u32(differ, static_cast<unsigned>(n)) == 0;
}

FASTREC_TARGET_PLAN
inline bool read_number(std::uint64_t bytes, std::size_t n,
                        std::uint64_t* value) noexcept {
  const std::uint64_t ends = _andn_u64(bytes, kTopBits);
  *value = _pext_u64(bytes, _blsmsk_u64(ends) & ~kTopBits);
  return _tzcnt_u64(ends) == 8 * n - 1;
}

}  // namespace
}  // namespace fastrec::kernels

#include "decode/plan_kernel.h"

namespace fastrec::kernels {

constinit const PlanKernel kPlanAvx512 = {"avx512", Isa::kAvx512, run_entries, run_both,
                                          find_entries};

}  // namespace fastrec::kernels

#endif
