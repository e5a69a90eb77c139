// Tests of the CRC-32C kernels.
//
// Goal: every kernel computes the checksum of RFC 3720 and reads no byte outside of its
// input. Method: compare every kernel with a bit-by-bit oracle, which the published
// vectors verify, at all lengths and alignments that a loop over words, vectors or
// parts could treat differently, in one call and in several; place inputs next to
// unreadable pages.

#include "crc32c/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "crc32c_avx512_emulated.h"
#include "guarded_pages.h"

namespace fastrec {
namespace {

using testing::GuardedPages;

// The division of the RFC, bit by bit, on a register that starts with all ones and is
// inverted at the end.
class Oracle {
 public:
  void add(std::uint8_t byte) {
    state_ ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      state_ = (state_ & 1) != 0 ? (state_ >> 1) ^ 0x82f63b78 : state_ >> 1;
    }
  }
  std::uint32_t crc() const { return ~state_; }

 private:
  std::uint32_t state_ = 0xffffffff;
};

std::uint32_t oracle_crc(Bytes data) {
  Oracle oracle;
  for (const std::uint8_t byte : data) oracle.add(byte);
  return oracle.crc();
}

std::vector<std::uint8_t> random_bytes(std::size_t size) {
  std::mt19937 random(20);
  std::vector<std::uint8_t> bytes(size);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// Lengths around the boundaries of long inputs: one and three parts of 4 KiB, stretches
// of 19040 and 37064 bytes, and several of those with short and long rests.
constexpr std::size_t kLongLengths[] = {
    4097,  5440,  8191,  12287, 12288, 12289, 12383, 12384, 12391, 19039, 19040,
    19041, 19487, 19488, 20000, 38080, 24576, 24700, 36863, 36864, 36871, 37063,
    37064, 37065, 38375, 38376, 38377, 65537, 74127, 74128, 75440, 110000};
constexpr std::size_t kLongest = 110000;

class Crc32c : public ::testing::TestWithParam<Crc32cKernel> {
 protected:
  std::uint32_t extend(std::uint32_t crc, Bytes data) const {
    return GetParam().extend(crc, data);
  }
  std::uint32_t crc(Bytes data) const { return extend(0, data); }
};

std::vector<Crc32cKernel> every_kernel() {
  std::vector<Crc32cKernel> kernels(crc32c_kernels().begin(), crc32c_kernels().end());
#if !defined(FASTREC_TESTS_ARE_EMULATED)  // emulating twice takes minutes
  kernels.push_back(testing::emulated_crc32c_avx512());
#endif
  return kernels;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Crc32c, ::testing::ValuesIn(every_kernel()),
                         [](const auto& param) { return param.param.name; });

struct Vector {
  std::vector<std::uint8_t> data;
  std::uint32_t crc;
};

// RFC 3720, appendix B.4, and the check value of CRC catalogues.
std::vector<Vector> published_vectors() {
  std::vector<std::uint8_t> ascending;
  for (std::uint8_t byte = 0; byte < 32; ++byte) ascending.push_back(byte);
  const std::vector<std::uint8_t> descending(ascending.rbegin(), ascending.rend());
  return {
      {std::vector<std::uint8_t>(32, 0x00), 0x8a9136aa},
      {std::vector<std::uint8_t>(32, 0xff), 0x62a8ab43},
      {ascending, 0x46dd794e},
      {descending, 0x113fdb5c},
      // An iSCSI SCSI Read (10) command PDU.
      {{0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
        0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00},
       0xd9963a56},
      {{'1', '2', '3', '4', '5', '6', '7', '8', '9'}, 0xe3069283},
  };
}

TEST(Crc32cOracle, MatchesThePublishedVectors) {
  for (const Vector& vector : published_vectors()) {
    EXPECT_EQ(oracle_crc(vector.data), vector.crc);
  }
}

TEST_P(Crc32c, MatchesThePublishedVectors) {
  for (const Vector& vector : published_vectors()) {
    EXPECT_EQ(crc(vector.data), vector.crc);
  }
}

TEST_P(Crc32c, EmptyInputLeavesTheChecksumUnchanged) {
  EXPECT_EQ(extend(0, {}), 0u);
  EXPECT_EQ(extend(0x12345678, {}), 0x12345678u);
}

TEST_P(Crc32c, AgreesWithTheOracleAtEveryLengthAndAlignment) {
  // All 64 alignments within a cache line. Only the 8 within a word get long inputs, to
  // keep unoptimized builds fast.
  const auto data = random_bytes(8 + 4096);
  for (std::size_t start = 0; start < 64; ++start) {
    const std::size_t max_length = start < 8 ? 4096 : 768;
    Oracle oracle;
    for (std::size_t length = 0; length <= max_length; ++length) {
      ASSERT_EQ(crc({&data[start], length}), oracle.crc()) << start << "+" << length;
      if (length < max_length) oracle.add(data[start + length]);
    }
  }
}

TEST_P(Crc32c, AgreesWithTheOracleOnLongInputs) {
  const auto data = random_bytes(kLongest + 3);
  const Bytes unaligned = Bytes(data).subspan(3);
  for (const std::size_t length : kLongLengths) {
    const Bytes part = unaligned.first(length);
    EXPECT_EQ(crc(part), oracle_crc(part)) << length;
  }
}

TEST_P(Crc32c, ShortInputsCanBeSplitAnywhere) {
  const auto data = random_bytes(300);
  const Bytes whole(data);
  const std::uint32_t expected = oracle_crc(whole);
  for (std::size_t first = 0; first <= whole.size(); ++first) {
    const std::uint32_t head = crc(whole.first(first));
    for (std::size_t second = first; second <= whole.size(); ++second) {
      const std::uint32_t middle = extend(head, whole.subspan(first, second - first));
      ASSERT_EQ(extend(middle, whole.subspan(second)), expected)
          << first << ", " << second;
    }
  }
}

TEST_P(Crc32c, LongInputsCanBeSplitAnywhere) {
  const auto data = random_bytes(30000);
  const Bytes whole(data);
  const std::uint32_t expected = oracle_crc(whole);
  std::mt19937 random(1);
  for (int repetition = 0; repetition < 200; ++repetition) {
    std::uint32_t crc = 0;
    std::string cuts;
    for (Bytes rest = whole; !rest.empty();) {
      const std::size_t length = std::min<std::size_t>(random() % 20000, rest.size());
      crc = extend(crc, rest.first(length));
      rest = rest.subspan(length);
      cuts += std::to_string(length) + " ";
    }
    ASSERT_EQ(crc, expected) << cuts;
  }
}

TEST_P(Crc32c, ReadsNothingOutsideOfTheInput) {
  const GuardedPages pages(kLongest);
  const MutableBytes bytes = pages.bytes();
  std::ranges::copy(random_bytes(bytes.size()), bytes.begin());

  std::vector<std::size_t> lengths(std::begin(kLongLengths), std::end(kLongLengths));
  for (std::size_t length = 0; length <= 8192; ++length) lengths.push_back(length);
  const Crc32cKernel& portable = crc32c_kernels().back();
  for (const std::size_t length : lengths) {
    for (const Bytes data : {Bytes(bytes.first(length)), Bytes(bytes.last(length))}) {
      ASSERT_EQ(crc(data), portable.extend(0, data)) << length;
    }
  }
}

// Contiguous frames with payloads of these lengths.
std::vector<std::uint8_t> frames_of(const std::vector<std::uint64_t>& lengths) {
  const std::vector<std::uint8_t> content = random_bytes(20000);
  std::vector<std::uint8_t> frames;
  const auto append = [&frames]<typename UInt>(UInt value) {
    frames.resize(frames.size() + sizeof value);
    store_le(frames.data() + frames.size() - sizeof value, value);
  };
  for (const std::uint64_t length : lengths) {
    append(length);
    append(crc32c_mask(oracle_crc(Bytes(frames).last(8))));
    const auto begin = content.begin() + static_cast<std::ptrdiff_t>(length % 97);
    frames.insert(frames.end(), begin, begin + static_cast<std::ptrdiff_t>(length));
    append(crc32c_mask(oracle_crc(Bytes(frames).last(length))));
  }
  return frames;
}

TEST_P(Crc32c, CountsTheFramesBeforeTheFirstDamagedOne) {
  std::vector<std::uint64_t> lengths = {5, 0, 700, 8, 95, 96, 97, 1400, 1, 64, 3000};
  std::vector<std::uint8_t> frames = frames_of(lengths);
  EXPECT_EQ(GetParam().count_intact(frames.data(), lengths), lengths.size());
  EXPECT_EQ(GetParam().count_intact(frames.data(), {}), 0u);
  std::size_t end = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    // A wrong length in an otherwise intact frame.
    for (const std::uint64_t difference : {1ull, 1ull << 40}) {
      lengths[i] += difference;
      EXPECT_EQ(GetParam().count_intact(frames.data(), lengths), i) << i;
      lengths[i] -= difference;
    }
    // A flipped bit in any byte.
    const std::size_t begin = end;
    end += lengths[i] + 16;
    for (std::size_t at = begin; at < end; ++at) {
      frames[at] ^= 0x10;
      ASSERT_EQ(GetParam().count_intact(frames.data(), lengths), i) << at - begin;
      frames[at] ^= 0x10;
    }
  }
}

TEST_P(Crc32c, CountsFramesWithoutReadingOutsideOfThem) {
  for (std::uint64_t length = 0; length <= 1500; ++length) {
    const std::vector<std::uint64_t> lengths = {length, length};
    const std::vector<std::uint8_t> frames = frames_of(lengths);
    const GuardedPages pages(frames.size());
    for (const MutableBytes bytes :
         {pages.bytes().first(frames.size()), pages.bytes().last(frames.size())}) {
      std::ranges::copy(frames, bytes.begin());
      ASSERT_EQ(GetParam().count_intact(bytes.data(), lengths), 2u) << length;
    }
  }
}

TEST_P(Crc32c, CopiesTheBytesThatItChecksums) {
  const GuardedPages source(kLongest);
  const GuardedPages target(kLongest);
  std::ranges::copy(random_bytes(source.bytes().size()), source.bytes().begin());
  std::vector<std::size_t> lengths(std::begin(kLongLengths), std::end(kLongLengths));
  for (std::size_t length = 0; length <= 1500; ++length) lengths.push_back(length);
  const Crc32cKernel& portable = crc32c_kernels().back();
  for (const std::size_t length : lengths) {
    const Bytes data = source.bytes().last(length);
    for (const MutableBytes copied :
         {target.bytes().first(length), target.bytes().last(length)}) {
      std::ranges::fill(copied, std::uint8_t{0});
      ASSERT_EQ(GetParam().copy(7, data, copied.data()), portable.extend(7, data))
          << length;
      ASSERT_TRUE(std::ranges::equal(data, copied)) << length;
    }
  }
}

TEST(Crc32cKernels, EndWithThePortableOne) {
  ASSERT_FALSE(crc32c_kernels().empty());
  EXPECT_STREQ(crc32c_kernels().back().name, "portable");
  EXPECT_EQ(crc32c_kernels().back().isa, Isa::kPortable);
}

TEST(Crc32cKernels, NeedOnlyWhatThisCpuSupports) {
  for (const Crc32cKernel& kernel : crc32c_kernels()) {
    EXPECT_EQ(std::ranges::count(supported_isas(), kernel.isa), 1) << kernel.name;
  }
}

TEST(Crc32cMask, MatchesTfrecordFiles) {
  // The frame of the record "abc".
  constexpr std::uint8_t kLength[] = {3, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(crc32c_mask(crc32c(kLength)), 0x0e4999b0u);
  EXPECT_EQ(crc32c_mask(crc32c(as_bytes("abc"))), 0x21f1576eu);
}

TEST(Crc32cMask, WrapsAround) {
  static_assert(crc32c_mask(0) == 0xa282ead8);
  static_assert(crc32c_mask(0xffffffff) == 0xa282ead7);
}

// FASTREC_ISA is read once, so each value needs a separate process. GoogleTest runs
// suites named *DeathTest first, before any other test reads it.
[[noreturn]] void exit_with_isa(const char* forced, Isa expected) {
  setenv("FASTREC_ISA", forced, 1);
  int status = 1;
  try {
    if (active_isa() == expected && crc32c_kernel().isa <= expected) status = 0;
  } catch (const std::invalid_argument& error) {
    std::fputs(error.what(), stderr);
    status = 2;
  }
  std::_Exit(status);
}

TEST(ForcedIsaDeathTest, EverySupportedIsaCanBeForced) {
  for (const Isa isa : supported_isas()) {
    EXPECT_EXIT(exit_with_isa(name_of(isa), isa), ::testing::ExitedWithCode(0), "");
  }
}

TEST(ForcedIsaDeathTest, AnUnsupportedOneIsAnErrorThatListsTheSupported) {
  EXPECT_EXIT(exit_with_isa("pdp11", Isa::kPortable), ::testing::ExitedWithCode(2),
              "FASTREC_ISA must .*portable.*got 'pdp11'");
}

}  // namespace
}  // namespace fastrec
