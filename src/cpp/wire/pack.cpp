#include "wire/pack.h"

#include <algorithm>
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

std::uint8_t* pack_portable(const std::uint8_t* values, std::size_t n,
                            std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    out = store_varint_with_room(int_at(values, i), out);
  }
  return out;
}

void spread_portable(const std::uint8_t* values, std::size_t n, std::uint64_t* words,
                     std::uint8_t* sizes) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t value = int_at(values, i);
    sizes[i] = static_cast<std::uint8_t>(varint_size(value));
    words[i] = sizes[i] > 8 ? value : spread_varint(value, sizes[i]);
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
void spread_avx2(const std::uint8_t* values, std::size_t n, std::uint64_t* words,
                 std::uint8_t* sizes) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t value = int_at(values, i);
    sizes[i] = static_cast<std::uint8_t>(varint_size(value));
    words[i] = sizes[i] > 8 ? value : spread_pdep(value, sizes[i]);
  }
}
#endif

// Best first.
constexpr PackKernel kKernels[] = {
#if defined(__x86_64__)
    {"avx512", Isa::kAvx512, kernels::pack_avx512, kernels::spread_avx512},
    {"avx2", Isa::kAvx2, kernels::pack_avx2, spread_avx2},
#endif
    {"portable", Isa::kPortable, pack_portable, spread_portable},
};

std::span<const PackKernel> kernels_up_to(Isa isa) noexcept {
  return {std::ranges::find_if(kKernels, [isa](auto& k) { return k.isa <= isa; }),
          std::end(kKernels)};
}

}  // namespace

#if defined(__x86_64__)
FASTREC_TARGET_PDEP
std::uint8_t* kernels::pack_avx2(const std::uint8_t* values, std::size_t n,
                                 std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t value = int_at(values, i);
    const auto size = static_cast<unsigned>(varint_size(value));
    if (size > 8) [[unlikely]] {
      store_long_varint(value, out);
    } else {
      store_le(out, spread_pdep(value, size));
    }
    out += size;
  }
  return out;
}
#endif

std::span<const PackKernel> pack_kernels() noexcept {
  return kernels_up_to(supported_isas().front());
}

const PackKernel& pack_kernel() {
  static const PackKernel& kernel = kernels_up_to(active_isa()).front();
  return kernel;
}

}  // namespace fastrec
