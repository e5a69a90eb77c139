// Tests of the kernels that pack varints.
//
// Goal: every kernel writes minimal varints, reads only its input and writes only to
// its room. Method: compare every kernel with a loop over groups of 7 bits, on integers
// of all sizes, alone, mixed and at every distance from the end; place inputs and
// outputs next to inaccessible pages.

#include "wire/pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "guarded_pages.h"
#include "pack_avx512_emulated.h"

namespace fastrec {
namespace {

using Integers = std::vector<std::uint64_t>;
using Varint = std::vector<std::uint8_t>;

Varint varint_of(std::uint64_t value) {
  Varint bytes;
  for (; value >= 128; value /= 128) {
    bytes.push_back(static_cast<std::uint8_t>(value % 128 + 128));
  }
  bytes.push_back(static_cast<std::uint8_t>(value));
  return bytes;
}

class Pack : public ::testing::TestWithParam<PackKernel> {
 protected:
  // All inputs and outputs end at the end of guarded pages.
  void expect_right(const Integers& integers) {
    const std::size_t n = integers.size();
    Varint expected;
    for (const std::uint64_t value : integers) {
      const Varint one = varint_of(value);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    std::uint8_t* const in = at_end_of(in_, n * 8);
    if (n != 0) std::memcpy(in, integers.data(), n * 8);
    std::uint8_t* const out = at_end_of(out_, pack_room(n));
    const std::uint8_t* const end = GetParam().pack(in, n, out);
    ASSERT_EQ(Varint(out, const_cast<std::uint8_t*>(end)), expected);

    std::uint8_t* const sizes = at_end_of(sizes_, n);
    auto* const words = reinterpret_cast<std::uint64_t*>(at_end_of(words_, n * 8));
    GetParam().spread(in, n, words, sizes);
    for (std::size_t i = 0; i < n; ++i) {
      const Varint one = varint_of(integers[i]);
      ASSERT_EQ(sizes[i], one.size()) << i << " of " << n;
      std::uint8_t bytes[8];
      store_le(bytes, words[i]);
      if (one.size() > 8) {
        ASSERT_EQ(words[i], integers[i]);
      } else {
        ASSERT_EQ(Varint(bytes, bytes + one.size()), one) << integers[i];
      }
    }
  }

 private:
  static std::uint8_t* at_end_of(const testing::GuardedPages& pages, std::size_t n) {
    return pages.bytes().data() + pages.bytes().size() - n;
  }

  testing::GuardedPages in_{1 << 15}, out_{1 << 16}, words_{1 << 15}, sizes_{1 << 12};
};

TEST_P(Pack, IntegersOfEverySizeAtEveryPlace) {
  for (std::size_t n = 0; n <= 18; ++n) {
    for (int bits = 0; bits <= 64; ++bits) {
      const std::uint64_t min = bits == 0 ? 0 : std::uint64_t{1} << (bits - 1);
      const std::uint64_t max = min == 0 ? 0 : min - 1 + min;
      expect_right(Integers(n, min));
      expect_right(Integers(n, max));
      for (std::size_t at = 0; at < n; ++at) {
        Integers one_other(n, 300);
        one_other[at] = max;
        expect_right(one_other);
      }
    }
  }
}

TEST_P(Pack, MixturesOfSizes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    Integers integers(random() % 200);
    const unsigned shift = static_cast<unsigned>(random() % 64);
    for (std::uint64_t& value : integers) {
      value = random() >> (round % 2 ? shift : random() % 64);
      if (round % 5 == 0 && random() % 16 == 0) value = ~value;  // negative
    }
    expect_right(integers);
  }
}

std::vector<PackKernel> all_kernels() {
  std::vector<PackKernel> kernels(pack_kernels().begin(), pack_kernels().end());
  kernels.push_back(testing::emulated_avx512_pack());
  return kernels;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Pack, ::testing::ValuesIn(all_kernels()),
                         [](const auto& kernel) {
                           return std::string(kernel.param.name);
                         });

}  // namespace
}  // namespace fastrec
