// Tests of frame headers and footers.
//
// Goal: they match the format byte for byte. Method: a handwritten frame, and the
// checks of the reader.

#include "record/append.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "record/framing.h"

namespace fastrec {
namespace {

using Buffer = std::vector<std::uint8_t>;

Buffer frame_around(std::string_view payload) {
  Buffer frame(payload.size() + kFrameBytes);
  store_header(payload.size(), frame.data());
  std::copy(payload.begin(), payload.end(), frame.begin() + kHeaderBytes);
  store_footer(payload.size(), frame.data());
  return frame;
}

TEST(Append, MatchesAHandwrittenFrame) {
  EXPECT_EQ(frame_around("abc"), (Buffer{0x03, 0, 0, 0, 0, 0, 0, 0,  // length
                                         0xb0, 0x99, 0x49, 0x0e,  // its masked checksum
                                         'a', 'b', 'c',           // payload
                                         0x6e, 0x57, 0xf1, 0x21}));  // its checksum
}

TEST(Append, TheReaderAcceptsFramesOfAnySize) {
  for (const std::size_t size : {0u, 1u, 7u, 8u, 4095u, 4096u, 1u << 20}) {
    std::string payload(size, 'x');
    for (std::size_t i = 0; i < size; ++i) payload[i] = static_cast<char>(i * 31);
    const Buffer frame = frame_around(payload);

    std::uint64_t length = ~std::uint64_t{0};
    ASSERT_FALSE(check_header(frame.data(), frame.size(), &length));
    EXPECT_EQ(length, size);
    EXPECT_FALSE(check_payload(frame));
    EXPECT_EQ(as_text(Bytes(frame).subspan(kHeaderBytes, size)), payload);
  }
}

}  // namespace
}  // namespace fastrec
