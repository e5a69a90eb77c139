// 64 bytes at a time, in one register. As in packed_avx2.cpp, a mask has the ends of
// the values. VPCOMPRESSB turns the mask into a list of offsets, and VPERMB gathers the
// bytes of sixteen values at once.
//
//   all of 1 byte         widened
//   all of 1 to 4 bytes   sixteen values by one permutation
//   others                one at a time, by PEXT
//
// Loads and stores are masked, so the end of the input needs no copy.
//
// tests/cpp/avx512_emulation.h replaces the intrinsics in tests on CPUs without
// AVX-512.

#if defined(__x86_64__) || defined(FASTREC_EMULATE_AVX512)

#if !defined(FASTREC_EMULATE_AVX512)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
// Silences false warnings in GCC 12's own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <algorithm>
#include <bit>

#include "wire/pext.h"

#define FASTREC_TARGET_AVX512 \
  FASTREC_TARGET("avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt")

namespace fastrec::kernels {
namespace {

constexpr std::size_t kMinValues = 4;
constexpr std::size_t kValuesAtOnce = 16;

// Bytes 0 to 63; and, for values of kValueBytes each, the offset of each byte in its
// value, and the index of that value.
struct alignas(64) Places {
  std::uint8_t all[kWindowBytes];
  std::uint8_t in_value[kWindowBytes];
  std::uint8_t of_value[kWindowBytes];
};

template <std::size_t kValueBytes>
constexpr Places kPlaces = [] {
  Places places{};
  for (std::size_t i = 0; i < kWindowBytes; ++i) {
    places.all[i] = static_cast<std::uint8_t>(i);
    places.in_value[i] = static_cast<std::uint8_t>(i % kValueBytes);
    places.of_value[i] = static_cast<std::uint8_t>(i / kValueBytes);
  }
  return places;
}();

// Stores the first `n` of sixteen integers.
FASTREC_TARGET_AVX512
inline void store(__m512i integers, std::size_t n, std::int32_t* values) noexcept {
  _mm512_mask_storeu_epi32(
      values, static_cast<__mmask16>(_bzhi_u64(0xffff, static_cast<unsigned>(n))),
      integers);
}

FASTREC_TARGET_AVX512
inline void store(__m512i integers, std::size_t n, std::int64_t* values) noexcept {
  const std::uint64_t wanted = _bzhi_u64(0xffff, static_cast<unsigned>(n));
  _mm512_mask_storeu_epi64(values, static_cast<__mmask8>(wanted),
                           _mm512_cvtepu32_epi64(_mm512_castsi512_si256(integers)));
  _mm512_mask_storeu_epi64(
      values + 8, static_cast<__mmask8>(wanted >> 8),
      _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(integers, 1)));
}

// Stores all sixteen integers.
FASTREC_TARGET_AVX512
inline void store(__m512i integers, std::int64_t* values) noexcept {
  _mm512_storeu_si512(values, _mm512_cvtepu32_epi64(_mm512_castsi512_si256(integers)));
  _mm512_storeu_si512(values + 8,
                      _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(integers, 1)));
}

FASTREC_TARGET_AVX512
inline void decode_single_bytes(const std::uint8_t* p, std::int64_t* values) noexcept {
  for (std::size_t i = 0; i < kWindowBytes; i += 8) {
    _mm512_storeu_si512(
        values + i,
        _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + i))));
  }
}

FASTREC_TARGET_AVX512
inline void decode_single_bytes(const std::uint8_t* p, std::int32_t* values) noexcept {
  for (std::size_t i = 0; i < kWindowBytes; i += 16) {
    _mm512_storeu_si512(
        values + i,
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i))));
  }
}

// Spreads the `n` values with these `ends`, each of at most kValueBytes bytes, to
// kValueBytes bytes each. Calls `on_values(fours, i)` for each vector, which starts
// with value i and has 28 bits in every four bytes. Values after the `n`-th are
// unspecified.
template <std::size_t kValueBytes, typename OnValues>
[[gnu::always_inline]] FASTREC_TARGET_AVX512 inline void spread_values(
    __m512i bytes, std::uint64_t ends, std::size_t n, OnValues&& on_values) noexcept {
  constexpr std::size_t kAtOnce = kWindowBytes / kValueBytes;
  const __m512i all = _mm512_load_si512(kPlaces<kValueBytes>.all);
  const __m512i in_value = _mm512_load_si512(kPlaces<kValueBytes>.in_value);
  const __m512i end_places = _mm512_maskz_compress_epi8(ends, all);
  const __m512i begin_places = _mm512_maskz_compress_epi8(ends << 1 | 1, all);
  const __m512i without_tops = _mm512_and_si512(bytes, _mm512_set1_epi8(0x7f));
  __m512i of_value = _mm512_load_si512(kPlaces<kValueBytes>.of_value);
  for (std::size_t i = 0; i < n; i += kAtOnce) {
    const __m512i from =
        _mm512_add_epi8(_mm512_permutexvar_epi8(of_value, begin_places), in_value);
    const __m512i last = _mm512_permutexvar_epi8(of_value, end_places);
    const __m512i apart = _mm512_maskz_permutexvar_epi8(
        _mm512_cmple_epu8_mask(from, last), from, without_tops);
    // Joins pairs of 7 bits to 14, and pairs of 14 bits to 28.
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_set1_epi16(-0x7fff), apart);
    on_values(_mm512_madd_epi16(pairs, _mm512_set1_epi32(0x40000001)), i);
    of_value = _mm512_add_epi8(of_value, _mm512_set1_epi8(kAtOnce));
  }
}

// Decodes the window at the cursor, which extends to `end` at most. Returns kNone if it
// has too few values, or one that is too long.
template <typename Int>
[[gnu::always_inline]] FASTREC_TARGET_AVX512 inline Step decode_window(
    const std::uint8_t* end, Cursor<Int>* cursor) noexcept {
  const auto n_bytes = static_cast<std::size_t>(end - cursor->p);
  const std::uint64_t valid = first_bytes(~std::uint64_t{0}, n_bytes);
  const __m512i bytes = _mm512_maskz_loadu_epi8(valid, cursor->p);
  const std::uint64_t continuing = _mm512_movepi8_mask(bytes);
  const std::uint64_t ends = ~continuing & valid;
  if (has_single_bytes(ends, *cursor)) {
    decode_single_bytes(cursor->p, cursor->values);
    advance(kWindowBytes, kWindowBytes, cursor);
    return Step::kDone;
  }
  const std::size_t n = std::min<std::size_t>(
      static_cast<std::size_t>(_mm_popcnt_u64(ends)), cursor->n_left);

  if (runs_of<4>(continuing) == 0 && n > 0) {
    spread_values<4>(
        bytes, ends, n, [&](__m512i sixteen, std::size_t i) FASTREC_TARGET_AVX512 {
          store(sixteen, std::min(n - i, kValuesAtOnce), cursor->values + i);
        });
    advance(end_of(n, ends), n, cursor);
    return Step::kDone;
  }
  if (n_bytes >= kReadableBytes) return decode_by_pext(ends, continuing, n, cursor);
  std::uint8_t copy[kReadableBytes] = {};
  _mm512_storeu_si512(copy, bytes);
  Cursor<Int> in_copy{copy, cursor->values, cursor->n_left};
  const Step step = decode_by_pext(ends, continuing, n, &in_copy);
  *cursor = {cursor->p + (in_copy.p - copy), in_copy.values, in_copy.n_left};
  return step;
}

template <typename Int>
FASTREC_TARGET_AVX512 inline const std::uint8_t* decode(Bytes packed, std::size_t count,
                                                        Int* values,
                                                        Errc* errc) noexcept {
  Cursor<Int> cursor{packed.data(), values, count};
  const std::uint8_t* end = packed.data() + packed.size();
  Step step = Step::kDone;
  while (step == Step::kDone && cursor.n_left >= kMinValues && cursor.p != end) {
    step = decode_window(end, &cursor);
  }
  return decode_rest(step, cursor, end, errc);
}

FASTREC_TARGET_AVX512
std::size_t decode_list(const std::uint8_t* packed, std::size_t n_bytes,
                        std::int64_t* values) noexcept {
  if (n_bytes == 0) return 0;
  if (packed[n_bytes - 1] >= 0x80) return kNotDecoded;
  const std::uint8_t* p = packed;
  std::int64_t* next = values;
  for (std::size_t n_left = n_bytes;;) {
    const std::uint64_t valid = first_bytes(~std::uint64_t{0}, n_left);
    const __m512i bytes = _mm512_loadu_si512(p);
    const std::uint64_t continuing = _mm512_movepi8_mask(bytes) & valid;
    const std::uint64_t ends = ~continuing & valid;
    if (runs_of<8>(continuing) != 0) return kNotDecoded;
    const auto n = static_cast<std::size_t>(_mm_popcnt_u64(ends));
    if (n > 8 && runs_of<4>(continuing) == 0) {
      spread_values<4>(bytes, ends, n,
                       [next](__m512i fours, std::size_t i)
                           FASTREC_TARGET_AVX512 { store(fours, next + i); });
    } else {
      spread_values<8>(
          bytes, ends, n, [next](__m512i fours, std::size_t i) FASTREC_TARGET_AVX512 {
            // Joins pairs of 28 bits to 56: c ? a : b for each bit.
            constexpr int kSelect = 0xe4;
            _mm512_storeu_si512(next + i, _mm512_ternarylogic_epi64(
                                              fours, _mm512_srli_epi64(fours, 4),
                                              _mm512_set1_epi64(0x0fffffff), kSelect));
          });
    }
    next += n;
    if (n_left <= kWindowBytes) return static_cast<std::size_t>(next - values);
    p += std::bit_width(ends);
    n_left = n_bytes - static_cast<std::size_t>(p - packed);
  }
}

FASTREC_TARGET_AVX512
std::size_t count(Bytes packed) noexcept {
  const std::uint8_t* p = packed.data();
  std::size_t left = packed.size();
  std::size_t n = 0;
  while (left > 0) {
    const std::size_t n_here = std::min(left, kWindowBytes);
    const std::uint64_t valid = first_bytes(~std::uint64_t{0}, left);
    const std::uint64_t tops = _mm512_movepi8_mask(_mm512_maskz_loadu_epi8(valid, p));
    n += static_cast<std::size_t>(_mm_popcnt_u64(~tops & valid));
    p += n_here;
    left -= n_here;
  }
  return n;
}

}  // namespace

constinit const VarintKernel kAvx512 = {
    "avx512", Isa::kAvx512, decode<std::int64_t>, decode<std::int32_t>,
    count,    decode_list};

}  // namespace fastrec::kernels

#endif
