// Append: payloads -> frames.
//
// Goal: what is appended is what the format says, byte for byte, and nothing before it
// changes. Method: a frame that was written out by hand, and the reader's own checks.

#include "record/append.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "record/framing.h"

namespace fastrec {
namespace {

using Buffer = std::vector<std::uint8_t>;

TEST(Append, MakesTheFrameOfTheFormat) {
  Buffer frame;
  append_frame(as_bytes("abc"), &frame);
  EXPECT_EQ(frame, (Buffer{0x03, 0, 0, 0, 0, 0, 0, 0,  // length
                           0xb0, 0x99, 0x49, 0x0e,     // its masked checksum
                           'a', 'b', 'c',              // payload
                           0x6e, 0x57, 0xf1, 0x21}));  // its masked checksum
}

TEST(Append, TheReaderAcceptsFramesOfAnySize) {
  for (const std::size_t size : {0u, 1u, 7u, 8u, 4095u, 4096u, 1u << 20}) {
    std::string payload(size, 'x');
    for (std::size_t i = 0; i < size; ++i) payload[i] = static_cast<char>(i * 31);
    Buffer frame;
    append_frame(as_bytes(payload), &frame);

    std::uint64_t length = ~std::uint64_t{0};
    ASSERT_FALSE(check_header(frame.data(), frame.size(), &length));
    EXPECT_EQ(length, size);
    EXPECT_EQ(frame.size(), size + kFrameBytes);
    EXPECT_FALSE(check_payload(frame));
    EXPECT_EQ(as_text(Bytes(frame).subspan(kHeaderBytes, size)), payload);
  }
}

TEST(Append, FramesLieBackToBack) {
  Buffer first, second, both;
  append_frame(as_bytes("alpha"), &first);
  append_frame(as_bytes(""), &second);
  append_frame(as_bytes("alpha"), &both);
  append_frame(as_bytes(""), &both);
  first.insert(first.end(), second.begin(), second.end());
  EXPECT_EQ(both, first);
}

TEST(Append, APayloadMadeInItsPlaceGivesTheSameFrame) {
  Buffer copied, made;
  append_frame(as_bytes("alpha"), &copied);
  append_frame(5, [](std::uint8_t* to) { std::memcpy(to, "alpha", 5); }, &made);
  EXPECT_EQ(made, copied);
}

}  // namespace
}  // namespace fastrec
