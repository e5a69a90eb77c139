// 64 bytes at a time. A 64-bit mask has the ends of all values, so the values are
// decoded independently of each other.
//
//   all of 1 byte         widened
//   all of 1 to 3 bytes   four values by one shuffle, which a table finds by 12 bits of
//                         the mask
//   others                one at a time, by PEXT
//
// Source: J. Plaisance, N. Kurz, D. Lemire, "Vectorized VByte Decoding", 2015 (the
// shuffle by lengths). Here, each entry of the table aligns four values, and PDEP finds
// the offsets, so that shuffles do not depend on each other.

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "wire/pext.h"
#include "wire/shuffles.h"

#define FASTREC_TARGET_AVX2 FASTREC_TARGET("avx2,bmi,bmi2,popcnt")

namespace fastrec::kernels {
namespace {

// Fewer values are faster to decode one at a time: copying the last bytes costs as much
// as ten values.
constexpr std::size_t kMinValues = 10;

// The mask of the bytes without a top bit.
FASTREC_TARGET_AVX2
inline std::uint64_t ends_of(const std::uint8_t* p) noexcept {
  const auto* vectors = reinterpret_cast<const __m256i*>(p);
  const auto low =
      static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_loadu_si256(vectors)));
  const auto high =
      static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_loadu_si256(vectors + 1)));
  return ~(std::uint64_t{high} << 32 | low);
}

FASTREC_TARGET_AVX2
inline void decode_single_bytes(const std::uint8_t* p, std::int64_t* values) noexcept {
  for (std::size_t i = 0; i < kWindowBytes; i += 4) {
    const __m128i bytes =
        _mm_cvtsi32_si128(static_cast<int>(load_le<std::uint32_t>(p + i)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + i),
                        _mm256_cvtepu8_epi64(bytes));
  }
}

FASTREC_TARGET_AVX2
inline void decode_single_bytes(const std::uint8_t* p, std::int32_t* values) noexcept {
  for (std::size_t i = 0; i < kWindowBytes; i += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + i),
                        _mm256_cvtepu8_epi32(bytes));
  }
}

FASTREC_TARGET_AVX2
inline void store_four(__m128i four, std::int64_t* values) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(values), _mm256_cvtepu32_epi64(four));
}

FASTREC_TARGET_AVX2
inline void store_four(__m128i four, std::int32_t* values) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(values), four);
}

// Decodes four values of at most 3 bytes with these `ends`.
template <typename Int>
FASTREC_TARGET_AVX2 inline void decode_four(const std::uint8_t* p, std::uint64_t ends,
                                            Int* values) noexcept {
  const std::uint8_t index = kShuffles.indices[ends & kShuffleMask];
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i shuffle =
      _mm_load_si128(reinterpret_cast<const __m128i*>(&kShuffles.bytes[index]));
  const __m128i apart =
      _mm_and_si128(_mm_shuffle_epi8(bytes, shuffle), _mm_set1_epi8(0x7f));
  // Joins pairs of 7 bits to 14, and pairs of 14 bits to 28.
  const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi16(-0x7fff), apart);
  store_four(_mm_madd_epi16(pairs, _mm_set1_epi32(0x40000001)), values);
}

// Decodes the window at the cursor; `valid` is the mask of bytes that belong to the
// input. Returns kNone if it has too few values, or one that is too long.
template <typename Int>
[[gnu::always_inline]] FASTREC_TARGET_AVX2 inline Step decode_window(
    std::uint64_t valid, Cursor<Int>* cursor) noexcept {
  const std::uint64_t all_ends = ends_of(cursor->p);
  const std::uint64_t ends = all_ends & valid;
  if (has_single_bytes(ends, *cursor)) {
    decode_single_bytes(cursor->p, cursor->values);
    advance(kWindowBytes, kWindowBytes, cursor);
    return Step::kDone;
  }
  const std::size_t n = std::min<std::size_t>(
      static_cast<std::size_t>(_mm_popcnt_u64(ends)), cursor->n_left);

  const std::uint64_t continuing = ~all_ends & valid;
  if (can_shuffle(continuing) && n >= 4) {
    std::uint64_t place = 0;
    for (std::size_t i = 0; i + 4 <= n; i += 4) {
      decode_four(cursor->p + place, ends >> place, cursor->values + i);
      place = end_of(i + 4, ends);
    }
    advance(place, n / 4 * 4, cursor);
    return Step::kDone;
  }
  return decode_by_pext(ends, continuing, n, cursor);
}

template <typename Int>
FASTREC_TARGET_AVX2 inline const std::uint8_t* decode(Bytes packed, std::size_t count,
                                                      Int* values,
                                                      Errc* errc) noexcept {
  Cursor<Int> cursor{packed.data(), values, count};
  const std::uint8_t* end = packed.data() + packed.size();
  Step step = Step::kDone;
  const auto n_bytes = [](const std::uint8_t* from, const std::uint8_t* to) {
    return static_cast<std::size_t>(to - from);
  };
  while (step == Step::kDone && n_bytes(cursor.p, end) >= kReadableBytes &&
         cursor.n_left >= kMinValues) {
    step = decode_window(~std::uint64_t{0}, &cursor);
  }
  if (step == Step::kDone && cursor.n_left >= kMinValues && cursor.p != end) {
    // Copies the rest and pads it with readable zeros.
    const std::size_t n_rest = n_bytes(cursor.p, end);
    std::uint8_t rest[2 * kReadableBytes] = {};
    std::memcpy(rest, cursor.p, n_rest);
    Cursor<Int> in_rest{rest, cursor.values, cursor.n_left};
    while (step == Step::kDone) {
      const std::size_t n = n_bytes(in_rest.p, rest + n_rest);
      step = decode_window(first_bytes(~std::uint64_t{0}, n), &in_rest);
    }
    cursor = {cursor.p + n_bytes(rest, in_rest.p), in_rest.values, in_rest.n_left};
  }
  return decode_rest(step, cursor, end, errc);
}

FASTREC_TARGET_AVX2
std::size_t decode_list(const std::uint8_t* packed, std::size_t n_bytes,
                        std::int64_t* values) noexcept {
  if (n_bytes == 0) return 0;
  if (packed[n_bytes - 1] >= 0x80) return kNotDecoded;
  const std::uint8_t* p = packed;
  std::size_t n = 0;
  for (std::size_t n_left = n_bytes;;) {
    const std::uint64_t all_ends = ends_of(p);
    std::uint64_t ends = first_bytes(all_ends, n_left);
    const std::uint64_t continuing = first_bytes(~all_ends, n_left);
    if (runs_of<8>(continuing) != 0) return kNotDecoded;
    const auto n_here = static_cast<std::size_t>(_mm_popcnt_u64(ends));
    const std::uint8_t* const after = p + std::bit_width(ends);
    if (n_here > kMinValues && can_shuffle(continuing)) {
      std::uint64_t place = 0;
      for (std::size_t i = 0; i < n_here; i += 4) {
        // The bytes after the last value may be decoded as values of one byte.
        decode_four(p + place, ~(continuing >> place), values + n + i);
        place = end_of(i + 4, ends);
      }
    } else {
      // Always four at a time: a branch on the number of values would be mispredicted
      // in every other list.
      for (std::size_t i = 0, begin = 0; i < n_here; i += 4) {
        for (std::size_t k = 0; k < 4; ++k) {
          const std::size_t value_end = _tzcnt_u64(ends) + 1;
          ends = _blsr_u64(ends);
          const auto n_bits = static_cast<unsigned>(8 * (value_end - begin));
          values[n + i + k] = static_cast<std::int64_t>(_pext_u64(
              load_le<std::uint64_t>(p + begin), _bzhi_u64(~kTopBits, n_bits)));
          begin = value_end;
        }
      }
    }
    n += n_here;
    if (n_left <= kWindowBytes) return n;
    p = after;
    n_left = n_bytes - static_cast<std::size_t>(p - packed);
  }
}

FASTREC_TARGET_AVX2
std::size_t count(Bytes packed) noexcept {
  const std::uint8_t* p = packed.data();
  std::size_t left = packed.size();
  std::size_t n = 0;
  for (; left >= kWindowBytes; p += kWindowBytes, left -= kWindowBytes) {
    n += static_cast<std::size_t>(_mm_popcnt_u64(ends_of(p)));
  }
  return n + kPortable.count({p, left});
}

}  // namespace

constinit const VarintKernel kAvx2 = {
    "avx2", Isa::kAvx2, decode<std::int64_t>, decode<std::int32_t>, count, decode_list};

}  // namespace fastrec::kernels

#endif
