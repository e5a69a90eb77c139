// Tests of the kernels that decode packed varints.
//
// Goal: every kernel returns the values of protobuf or the same error, reads only its
// input and writes only the requested values. Method: compare every kernel with a
// bit-by-bit oracle, on values of every length, alone, at every place of a window and
// in realistic mixtures, also with damage and wrong numbers of values; place inputs and
// outputs next to inaccessible pages.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <sstream>
#include <utility>
#include <vector>

#include "guarded_pages.h"
#include "varint_avx512_emulated.h"
#include "wire/packed.h"

namespace fastrec {
namespace {

using testing::GuardedPages;

using Packed = std::vector<std::uint8_t>;

// The oracle: the first `count` varints of `packed` as values of Int.
template <typename Int>
struct Expected {
  Expected(Bytes packed, std::size_t count) {
    while (values.size() < count && errc == Errc::kOk) {
      std::uint64_t bits = 0;
      std::size_t n = 0;
      for (bool more = true; more && errc == Errc::kOk; ++n) {
        if (n == 10) {
          errc = Errc::kVarintTooLong;
        } else if (size + n == packed.size()) {
          errc = Errc::kVarintCut;
        } else {
          const std::uint8_t byte = packed[size + n];
          for (std::size_t bit = 0; bit < 7 && 7 * n + bit < 64; ++bit) {
            bits |= std::uint64_t{byte >> bit & 1u} << (7 * n + bit);
          }
          more = byte >= 0x80;
        }
      }
      const auto value = static_cast<std::int64_t>(bits);
      if (errc == Errc::kOk && !std::in_range<Int>(value)) {
        errc = Errc::kValueOutOfRange;
      }
      if (errc == Errc::kOk) {
        values.push_back(static_cast<Int>(value));
        size += n;
      }
    }
  }

  std::vector<Int> values;  // before the invalid one
  std::size_t size = 0;     // of their encodings
  Errc errc = Errc::kOk;
};

// Appends `value` in at least `length` bytes.
void append(std::uint64_t value, Packed* packed, std::size_t length = 1) {
  for (std::size_t i = 1; value >= 0x80 || i < length; ++i, value >>= 7) {
    packed->push_back(static_cast<std::uint8_t>(value | 0x80));
  }
  packed->push_back(static_cast<std::uint8_t>(value));
}

const std::uint8_t* run(const VarintKernel& kernel, Bytes packed, std::size_t count,
                        std::int64_t* values, Errc* errc) {
  return kernel.decode_int64(packed, count, values, errc);
}
const std::uint8_t* run(const VarintKernel& kernel, Bytes packed, std::size_t count,
                        std::int32_t* values, Errc* errc) {
  return kernel.decode_int32(packed, count, values, errc);
}

class Varints : public ::testing::TestWithParam<VarintKernel> {
 protected:
  template <typename Int>
  ::testing::AssertionResult agrees_as(Bytes packed, std::size_t count) {
    const Expected<Int> expected(packed, count);
    // Room for exactly `count` values, before an inaccessible page.
    const auto room = output_.bytes().last(count * sizeof(Int));
    auto* values = reinterpret_cast<Int*>(room.data());
    std::fill_n(values, count, Int{0x5a});
    Errc errc = Errc::kOk;
    const std::uint8_t* after = run(GetParam(), packed, count, values, &errc);
    const auto describe = [&] {
      std::ostringstream text;
      text << sizeof(Int) << "-byte integers, count " << count << ", bytes";
      for (const std::uint8_t byte : packed) text << " " << unsigned{byte};
      return text.str();
    };
    if (errc != expected.errc) {
      return ::testing::AssertionFailure() << "error " << int(errc) << ", not "
                                           << int(expected.errc) << ": " << describe();
    }
    if (after != (errc == Errc::kOk ? packed.data() + expected.size : nullptr)) {
      return ::testing::AssertionFailure() << "ends elsewhere: " << describe();
    }
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      if (values[i] != expected.values[i]) {
        return ::testing::AssertionFailure()
               << "value " << i << " is " << values[i] << ", not " << expected.values[i]
               << ": " << describe();
      }
    }
    return ::testing::AssertionSuccess();
  }

  // The same for decode_list(). The content of the slack must not matter.
  ::testing::AssertionResult agrees_as_list(Bytes packed, std::uint8_t slack) {
    constexpr std::size_t kSlackBytes = BytesWithSlack::kSlackBytes;
    const MutableBytes room = input_.bytes().last(packed.size() + 2 * kSlackBytes);
    std::ranges::fill(room, slack);
    std::ranges::copy(packed, room.begin() + kSlackBytes);
    Expected<std::int64_t> expected(packed, packed.size());
    std::size_t n_expected = expected.values.size();
    if (expected.size != packed.size()) n_expected = kNotDecoded;
    for (std::size_t i = 0, n_bytes = 0; i < packed.size(); ++i) {
      n_bytes = packed[i] < 0x80 ? 0 : n_bytes + 1;
      if (n_bytes == 8) n_expected = kNotDecoded;
    }
    const std::size_t n_room = packed.size() + kSpareValues;
    const auto output = output_.bytes().last(n_room * sizeof(std::int64_t));
    auto* values = reinterpret_cast<std::int64_t*>(output.data());
    const std::size_t n =
        GetParam().decode_list(room.data() + kSlackBytes, packed.size(), values);
    if (n != n_expected) {
      return ::testing::AssertionFailure()
             << "list of " << n << " values, not " << n_expected;
    }
    if (n != kNotDecoded && !std::equal(values, values + n, expected.values.begin())) {
      return ::testing::AssertionFailure() << "list has other values";
    }
    return ::testing::AssertionSuccess();
  }

  // Whether the kernel agrees with the oracle, next to either guard page.
  ::testing::AssertionResult agrees(Bytes packed, std::size_t count) {
    const MutableBytes readable = input_.bytes();
    const auto n_ends = static_cast<std::size_t>(
        std::ranges::count_if(packed, [](std::uint8_t byte) { return byte < 0x80; }));
    for (const MutableBytes copy :
         {readable.first(packed.size()), readable.last(packed.size())}) {
      std::ranges::copy(packed, copy.begin());
      if (auto result = agrees_as<std::int64_t>(copy, count); !result) return result;
      if (auto result = agrees_as<std::int32_t>(copy, count); !result) return result;
      if (GetParam().count(copy) != n_ends) {
        return ::testing::AssertionFailure() << "counts " << GetParam().count(copy);
      }
    }
    for (const std::uint8_t slack : {std::uint8_t{0}, std::uint8_t{0xff}}) {
      if (auto result = agrees_as_list(packed, slack); !result) return result;
    }
    return ::testing::AssertionSuccess();
  }

  static constexpr std::size_t kMaxBytes = 8192;

 private:
  GuardedPages input_{kMaxBytes + 2 * BytesWithSlack::kSlackBytes};
  GuardedPages output_{(kMaxBytes + kSpareValues) * sizeof(std::int64_t)};
};

std::vector<VarintKernel> every_kernel() {
  std::vector<VarintKernel> kernels(varint_kernels().begin(), varint_kernels().end());
#if !defined(FASTREC_TESTS_ARE_EMULATED)  // emulating twice takes minutes
  kernels.push_back(testing::emulated_avx512());
#endif
  return kernels;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Varints, ::testing::ValuesIn(every_kernel()),
                         [](const auto& param) { return param.param.name; });

// A random value of exactly `length` bytes, at most 10.
std::uint64_t value_of_length(std::size_t length, std::mt19937_64* random) {
  const std::size_t n_bits = std::min<std::size_t>(7 * length, 64);
  const std::uint64_t top = std::uint64_t{1} << (7 * (length - 1));
  const std::uint64_t bits = (*random)() >> (64 - n_bits);
  return length == 1 ? bits : bits | top;
}

TEST_P(Varints, EmptyInputs) {
  EXPECT_TRUE(agrees({}, 0));
  EXPECT_TRUE(agrees({}, 1));
  EXPECT_TRUE(agrees({}, 100));
}

TEST_P(Varints, EveryLengthAtEveryPlaceOfAWindow) {
  std::mt19937_64 random(1);
  for (std::size_t length = 1; length <= 12; ++length) {
    for (std::size_t n_before = 0; n_before <= 140; ++n_before) {
      for (const std::size_t n_after : {0u, 1u, 5u, 70u, 200u}) {
        Packed packed(n_before, 0x05);
        if (length <= 10) {
          append(value_of_length(length, &random), &packed);
        } else {
          append(1, &packed, length);
        }
        packed.insert(packed.end(), n_after, 0x06);
        ASSERT_TRUE(agrees(packed, n_before + 1 + n_after));
        ASSERT_TRUE(agrees(packed, n_before));
      }
    }
  }
}

TEST_P(Varints, EveryNumberOfValuesOfOneLength) {
  std::mt19937_64 random(2);
  for (std::size_t length = 1; length <= 10; ++length) {
    Packed packed;
    for (std::size_t n = 0; n <= 200; ++n) {
      ASSERT_TRUE(agrees(packed, n));
      append(value_of_length(length, &random), &packed);
    }
  }
}

TEST_P(Varints, ShortListsOfEveryPairOfLengths) {
  std::mt19937_64 random(8);
  for (std::size_t first = 1; first <= 11; ++first) {
    for (std::size_t second = 1; second <= 11; ++second) {
      Packed packed;
      for (std::size_t n = 0; n <= 40; ++n) {
        ASSERT_TRUE(agrees(packed, n));
        append(1, &packed, random() % 2 == 0 ? first : second);
      }
    }
  }
}

TEST_P(Varints, NonMinimalEncodings) {
  for (std::size_t length = 1; length <= 10; ++length) {
    Packed packed;
    for (std::size_t n = 0; n <= 150; ++n) append(n % 128, &packed, length);
    ASSERT_TRUE(agrees(packed, 151));
  }
}

TEST_P(Varints, BitsAboveTheSixtyFourthAreDropped) {
  for (std::size_t n_before = 0; n_before < 130; ++n_before) {
    for (unsigned last = 0; last < 0x80; last += 3) {
      Packed packed(n_before, 0x01);
      packed.insert(packed.end(), 9, 0x80);
      packed.push_back(static_cast<std::uint8_t>(last));
      packed.insert(packed.end(), 100, 0x01);
      ASSERT_TRUE(agrees(packed, n_before + 101));
    }
  }
}

TEST_P(Varints, ValuesAroundTheLimitsOfTheDtype) {
  constexpr std::int64_t kEdges[] = {
      0,
      -1,
      std::numeric_limits<std::int32_t>::max(),
      std::numeric_limits<std::int32_t>::min(),
      std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1,
      std::int64_t{std::numeric_limits<std::int32_t>::min()} - 1,
      std::int64_t{1} << 32,
      std::numeric_limits<std::int64_t>::max(),
      std::numeric_limits<std::int64_t>::min()};
  for (const std::int64_t edge : kEdges) {
    for (std::size_t n_before = 0; n_before <= 130; ++n_before) {
      Packed packed;
      for (std::size_t i = 0; i < n_before; ++i) append(300, &packed);
      append(static_cast<std::uint64_t>(edge), &packed);
      for (std::size_t i = 0; i < 50; ++i) append(300, &packed);
      ASSERT_TRUE(agrees(packed, n_before + 51));
    }
  }
}

// Realistic lists: the relative frequencies of lengths 1 to 10.
constexpr unsigned kMixtures[][10] = {
    {1, 0, 0, 0, 0, 0, 0, 0, 0, 0},    {1, 1, 0, 0, 0, 0, 0, 0, 0, 0},
    {1, 50, 49, 0, 0, 0, 0, 0, 0, 0},  // tokens
    {1, 1, 1, 1, 0, 0, 0, 0, 0, 0},    {0, 0, 0, 0, 1, 90, 0, 0, 0, 0},
    {0, 0, 0, 0, 0, 0, 0, 0, 5, 95},    // random bits
    {0, 40, 40, 0, 0, 0, 0, 0, 0, 20},  // tokens, and -1
    {97, 1, 0, 1, 0, 0, 0, 0, 0, 1},   {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    {0, 0, 0, 0, 0, 0, 1, 1, 1, 0},
};

Packed mixture(const unsigned (&weights)[10], std::size_t n, std::mt19937_64* random) {
  std::discrete_distribution<std::size_t> lengths(std::begin(weights),
                                                  std::end(weights));
  Packed packed;
  for (std::size_t i = 0; i < n; ++i) {
    append(value_of_length(1 + lengths(*random), random), &packed);
  }
  return packed;
}

TEST_P(Varints, MixturesOfEverySizeAtEveryAlignment) {
  std::mt19937_64 random(3);
  for (const auto& weights : kMixtures) {
    for (std::size_t n = 0; n <= 300; ++n) {
      const Packed packed = mixture(weights, n, &random);
      ASSERT_TRUE(agrees(packed, n));
      ASSERT_TRUE(agrees(packed, n + 1));
      ASSERT_TRUE(agrees(packed, n / 2));
    }
    const Packed whole = mixture(weights, 300, &random);
    for (std::size_t start = 0; start < 64; ++start) {
      const Bytes packed = Bytes(whole).subspan(start);
      ASSERT_TRUE(agrees(packed, 100));
      ASSERT_TRUE(agrees(packed, 301));
    }
  }
}

TEST_P(Varints, EveryTruncation) {
  std::mt19937_64 random(4);
  for (const auto& weights : kMixtures) {
    const Packed packed = mixture(weights, 120, &random);
    for (std::size_t size = 0; size <= packed.size(); ++size) {
      ASSERT_TRUE(agrees(Bytes(packed).first(size), 120));
      ASSERT_TRUE(agrees(Bytes(packed).first(size), 30));
    }
  }
}

TEST_P(Varints, DamagedLists) {
  std::mt19937_64 random(5);
  for (int repetition = 0; repetition < 4000; ++repetition) {
    const std::size_t n = random() % 200;
    Packed packed = mixture(kMixtures[random() % std::size(kMixtures)], n, &random);
    for (std::size_t damages = random() % 4; damages > 0 && !packed.empty();
         --damages) {
      const std::size_t place = random() % packed.size();
      const std::size_t length = random() % 14;
      const auto byte = static_cast<std::uint8_t>(random());
      for (std::size_t i = place; i < std::min(place + length, packed.size()); ++i) {
        packed[i] = (random() & 1) != 0 ? static_cast<std::uint8_t>(packed[i] ^ 0x80)
                                        : static_cast<std::uint8_t>(byte | 0x80);
      }
    }
    ASSERT_TRUE(agrees(packed, n));
    ASSERT_TRUE(agrees(packed, random() % (n + 20)));
  }
}

TEST_P(Varints, RandomBytes) {
  std::mt19937_64 random(6);
  for (int repetition = 0; repetition < 4000; ++repetition) {
    Packed packed(random() % 400);
    const unsigned continuing = random() % 16;
    for (std::uint8_t& byte : packed) {
      byte = static_cast<std::uint8_t>(random() & 0x7f);
      if (random() % 16 < continuing) byte |= 0x80;
    }
    ASSERT_TRUE(agrees(packed, random() % 400));
  }
}

TEST_P(Varints, LongLists) {
  std::mt19937_64 random(7);
  for (const auto& weights : kMixtures) {
    Packed packed = mixture(weights, 800, &random);
    ASSERT_LE(packed.size(), kMaxBytes);
    ASSERT_TRUE(agrees(packed, 800));
  }
}

TEST(VarintKernels, EndWithThePortableOne) {
  ASSERT_FALSE(varint_kernels().empty());
  EXPECT_STREQ(varint_kernels().back().name, "portable");
  EXPECT_EQ(varint_kernels().back().isa, Isa::kPortable);
}

TEST(VarintKernels, NeedOnlyWhatThisCpuSupports) {
  for (const VarintKernel& kernel : varint_kernels()) {
    EXPECT_EQ(std::ranges::count(supported_isas(), kernel.isa), 1) << kernel.name;
  }
}

}  // namespace
}  // namespace fastrec
