#include "wire/pack.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fastrec {
namespace {

std::uint64_t int_at(const std::uint8_t* values, std::size_t i) noexcept {
  std::uint64_t value;
  std::memcpy(&value, values + i * sizeof value, sizeof value);
  return value;
}

// Both functions, for a `kSpread(value, size)` that returns the varint of `size` bytes,
// at most 8, in the low bytes of a word.
template <auto kSpread>
[[gnu::always_inline]] inline std::uint8_t* pack_each(const std::uint8_t* values,
                                                      std::size_t n,
                                                      std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t value = int_at(values, i);
    const auto size = static_cast<unsigned>(varint_size(value));
    if (size > 8) [[unlikely]] {
      store_long_varint(value, out);
    } else {
      store_le(out, kSpread(value, size));
    }
    out += size;
  }
  return out;
}

template <auto kSpread>
[[gnu::always_inline]] inline void spread_each(const std::uint8_t* values,
                                               std::size_t n, std::uint64_t* words,
                                               std::uint8_t* sizes) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t value = int_at(values, i);
    sizes[i] = static_cast<std::uint8_t>(varint_size(value));
    words[i] = sizes[i] > 8 ? value : kSpread(value, sizes[i]);
  }
}

#if defined(__x86_64__)
#define FASTREC_TARGET_PDEP FASTREC_TARGET("bmi,bmi2")

FASTREC_TARGET_PDEP
inline std::uint64_t spread_pdep(std::uint64_t value, unsigned size) noexcept {
  const std::uint64_t more = (std::uint64_t{1} << 8 * (size - 1)) - 1;
  return _pdep_u64(value, ~kTopBits) | (more & kTopBits);
}

FASTREC_TARGET_PDEP
std::uint8_t* pack_avx2(const std::uint8_t* values, std::size_t n,
                        std::uint8_t* out) noexcept {
  return pack_each<spread_pdep>(values, n, out);
}

FASTREC_TARGET_PDEP
void spread_avx2(const std::uint8_t* values, std::size_t n, std::uint64_t* words,
                 std::uint8_t* sizes) noexcept {
  spread_each<spread_pdep>(values, n, words, sizes);
}
#endif

std::span<const PackKernel> kernels_of(Isa isa) noexcept {
  // A local variable, because a static constructor may call this.
  static const PackKernel all[] = {
#if defined(__x86_64__)
      kernels::kPackAvx512,
      kernels::kPackAvx2,
#endif
      {"portable", Isa::kPortable, pack_each<spread_varint>,
       spread_each<spread_varint>},
  };
  return kernels_up_to(isa, all);
}

}  // namespace

#if defined(__x86_64__)
constinit const PackKernel kernels::kPackAvx2 = {"avx2", Isa::kAvx2, pack_avx2,
                                                 spread_avx2};
#endif

std::span<const PackKernel> pack_kernels() noexcept {
  return kernels_of(supported_isas().front());
}

const PackKernel& pack_kernel() {
  static const PackKernel& kernel = kernels_of(active_isa()).front();
  return kernel;
}

}  // namespace fastrec
