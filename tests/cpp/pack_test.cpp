// Every kernel that packs varints, one set of cases.
//
// Goal: whichever kernel a machine picks, integers become the shortest varints, nothing
// outside of the input is read, and nothing outside of the room is written. Method: a
// loop over groups of 7 bits as the oracle; every kernel against it on integers of all
// sizes, alone, mixed and at every distance from the end; inputs and outputs between
// pages that must not be touched.

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
  // At the ends of guarded pages: the integers, the words and sizes, and the room.
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
      const std::uint64_t least = bits == 0 ? 0 : std::uint64_t{1} << (bits - 1);
      const std::uint64_t most = least == 0 ? 0 : least - 1 + least;
      expect_right(Integers(n, least));
      expect_right(Integers(n, most));
      for (std::size_t at = 0; at < n; ++at) {
        Integers one_other(n, 300);
        one_other[at] = most;
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
