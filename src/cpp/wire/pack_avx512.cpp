// Eight integers at a time: VPMULTISHIFTQB splits each into groups of 7 bits, VPLZCNTQ
// counts the bytes it needs, and VPCOMPRESSB removes the others.
//
// tests/cpp/avx512_emulation.h replaces the intrinsics in tests on CPUs without
// AVX-512.

#include "wire/pack.h"

#if defined(__x86_64__) || defined(FASTREC_EMULATE_AVX512)

#if !defined(FASTREC_EMULATE_AVX512)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
// Silences false warnings in GCC 12's own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <algorithm>

#define FASTREC_TARGET_PACK \
  FASTREC_TARGET("avx512f,avx512bw,avx512cd,avx512vbmi,avx512vbmi2,popcnt")

namespace fastrec::kernels {
namespace {

constexpr std::size_t kLanes = 8;
constexpr int kOrOfAnd = 0xf8;  // the truth table of a | (b & c)

// Varints of up to 8 bytes, one in each lane.
struct Varints {
  __m512i words;
  __m512i sizes;
  __m512i kept;    // ones in the bytes that belong to the varint
  __mmask8 large;  // lanes whose varint is longer
};

FASTREC_TARGET_PACK
inline Varints varints_of(__m512i values) noexcept {
  const __m512i one = _mm512_set1_epi64(1);
  const __m512i bits = _mm512_sub_epi64(
      _mm512_set1_epi64(64), _mm512_lzcnt_epi64(_mm512_or_si512(values, one)));
  // As in varint_size(): (9 * bits + 64) / 64.
  const __m512i sizes = _mm512_srli_epi64(
      _mm512_add_epi64(_mm512_add_epi64(_mm512_slli_epi64(bits, 3), bits),
                       _mm512_set1_epi64(64)),
      6);
  // A shift by 64 or more returns zero, and zero minus one is all ones.
  const __m512i kept =
      _mm512_sub_epi64(_mm512_sllv_epi64(one, _mm512_slli_epi64(sizes, 3)), one);
  const __m512i sevens = _mm512_multishift_epi64_epi8(
      _mm512_set1_epi64(0x31'2a'23'1c'15'0e'07'00), values);
  // All bytes but the last have the top bit.
  const __m512i words = _mm512_ternarylogic_epi64(
      _mm512_and_si512(sevens, _mm512_set1_epi8(0x7f)), _mm512_srli_epi64(kept, 8),
      _mm512_set1_epi8(-0x80), kOrOfAnd);
  return {words, sizes, kept,
          _mm512_cmpgt_epu64_mask(sizes, _mm512_set1_epi64(kLanes))};
}

FASTREC_TARGET_PACK
inline __mmask8 first_lanes(std::size_t n) noexcept {
  return static_cast<__mmask8>((1u << std::min(n, kLanes)) - 1);
}

FASTREC_TARGET_PACK
std::uint8_t* pack(const std::uint8_t* values, std::size_t n,
                   std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < n; i += kLanes) {
    const __mmask8 lanes = first_lanes(n - i);
    const __m512i integers = _mm512_maskz_loadu_epi64(lanes, values + 8 * i);
    const Varints varints = varints_of(integers);
    if (varints.large != 0) [[unlikely]] {
      // From the copy: the input may have changed since it was loaded.
      std::uint8_t copy[8 * kLanes];
      _mm512_storeu_si512(copy, integers);
      out = kPackAvx2.pack(copy, std::min(n - i, kLanes), out);
      continue;
    }
    const __mmask64 kept =
        _mm512_movepi8_mask(_mm512_maskz_mov_epi64(lanes, varints.kept));
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(kept, varints.words));
    out += _mm_popcnt_u64(kept);
  }
  return out;
}

FASTREC_TARGET_PACK
void spread(const std::uint8_t* values, std::size_t n, std::uint64_t* words,
            std::uint8_t* sizes) noexcept {
  for (std::size_t i = 0; i < n; i += kLanes) {
    const __mmask8 lanes = first_lanes(n - i);
    const __m512i integers = _mm512_maskz_loadu_epi64(lanes, values + 8 * i);
    const Varints varints = varints_of(integers);
    _mm512_mask_storeu_epi64(
        words + i, lanes,
        _mm512_mask_mov_epi64(varints.words, varints.large, integers));
    _mm512_mask_cvtepi64_storeu_epi8(sizes + i, lanes, varints.sizes);
  }
}

}  // namespace

constinit const PackKernel kPackAvx512 = {"avx512", Isa::kAvx512, pack, spread};

}  // namespace fastrec::kernels

#endif
