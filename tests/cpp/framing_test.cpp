// Tests of framing.
//
// Goal: every changed header byte and every truncation is a fault with the right
// offset, and stored headers and footers match the format byte for byte. Method: damage a
// small file at every possible place; store frames around payloads.

#include "record/framing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "records.h"

namespace fastrec {
namespace {

using testing::frame_of;
using testing::header_of;

// Walks `file` to its end or first fault. Returns the number of complete records.
std::size_t walk(std::string_view file, Fault* fault) {
  const Bytes bytes = as_bytes(file);
  std::size_t n = 0;
  for (std::size_t at = 0; at < bytes.size(); ++n) {
    std::uint64_t length;
    *fault = check_header(bytes.data() + at, bytes.size() - at, &length);
    if (*fault) return n;
    *fault = check_payload(bytes.subspan(at, length + kFrameBytes));
    if (*fault) return n;
    at += length + kFrameBytes;
  }
  return n;
}

TEST(Framing, WholeFilesAreWalkedToTheirEnd) {
  Fault fault;
  EXPECT_EQ(walk(testing::file_of({"alpha", "", "gamma"}), &fault), 3u);
  EXPECT_FALSE(fault);
  EXPECT_EQ(walk("", &fault), 0u);
  EXPECT_FALSE(fault);
}

TEST(FramingCorruption, EveryFlippedBitIsAFaultOfItsRecord) {
  const std::string good = testing::file_of({"alpha", "beta"});
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    Fault fault;
    EXPECT_EQ(walk(bad, &fault), bit / 8 < frame_of("alpha").size() ? 0u : 1u);
    EXPECT_TRUE(fault) << "bit " << bit;
  }
}

TEST(FramingCorruption, EveryTruncationKeepsTheCompleteRecords) {
  const std::string good = testing::file_of({"alpha", "beta"});
  const std::size_t boundary = frame_of("alpha").size();
  for (std::size_t size = 1; size < good.size(); ++size) {
    Fault fault;
    EXPECT_EQ(walk(good.substr(0, size), &fault), size < boundary ? 0u : 1u);
    EXPECT_EQ(static_cast<bool>(fault), size != boundary) << "size " << size;
  }
}

TEST(FramingCorruption, ATruncatedPayloadHasTheNumberOfBytesFound) {
  const std::string good = frame_of("seventeen letters");
  std::uint64_t length;
  const Fault fault = check_header(as_bytes(good).data(), good.size() - 1, &length);
  EXPECT_EQ(describe(fault), "the file ends inside a record (20 of 21 bytes)");
}

TEST(FramingCorruption, LengthsNearTheLimitOfUint64DoNotWrap) {
  for (const std::uint64_t excess : {0u, 1u, 4u, 12u, 15u, 16u, 17u, 63u, 64u}) {
    const std::string file =
        header_of(0 - std::uint64_t{excess} - 1) + std::string(64, 'x');
    std::uint64_t length = 42;
    const Fault fault = check_header(as_bytes(file).data(), file.size(), &length);
    EXPECT_EQ(fault.code, Errc::kTruncatedPayload);
    EXPECT_EQ(length, 0u);
  }
}

TEST(Errors, EveryErrcHasAUniqueCodeName) {
  for (std::size_t i = 0; i < kErrcCount; ++i) {
    const auto errc = static_cast<Errc>(i);
    EXPECT_EQ(errc_named(code_name(errc)), errc) << code_name(errc);
  }
  EXPECT_EQ(errc_named("no such code"), Errc::kUnexpected);
}

TEST(Framing, ContentIsDetectedFromItsFirstBytes) {
  const auto content = [](std::string_view text) { return recognize(as_bytes(text)); };
  EXPECT_EQ(content(""), Content::kEmpty);
  EXPECT_EQ(content(frame_of("payload")), Content::kTfrecord);
  EXPECT_EQ(content(header_of(1'000'000)), Content::kTfrecord);
  EXPECT_EQ(content("\x1f\x8b\x08"), Content::kGzip);
  EXPECT_EQ(content("\x78\x9c\x01\x02"), Content::kZlib);
  EXPECT_EQ(content("\x78\x9cKb\x80\x80\xca\xbf\t\xf9\\\t"),
            Content::kZlib);  // no controls
  EXPECT_EQ(content("xylophone,1,2\n"), Content::kText);
  EXPECT_EQ(content("x^ is text"), Content::kText);
  EXPECT_EQ(content("caf\xc3\xa9"), Content::kText);
  EXPECT_EQ(content(std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0\0", 13)),
            Content::kUnknown);
}

using Buffer = std::vector<std::uint8_t>;

Buffer frame_around(std::string_view payload) {
  Buffer frame(payload.size() + kFrameBytes);
  store_header(payload.size(), frame.data());
  std::copy(payload.begin(), payload.end(), frame.begin() + kHeaderBytes);
  store_footer(payload.size(), frame.data());
  return frame;
}

TEST(Framing, AStoredFrameMatchesAHandwrittenOne) {
  EXPECT_EQ(frame_around("abc"), (Buffer{0x03, 0, 0, 0, 0, 0, 0, 0,  // length
                                         0xb0, 0x99, 0x49, 0x0e,  // its masked checksum
                                         'a', 'b', 'c',           // payload
                                         0x6e, 0x57, 0xf1, 0x21}));  // its checksum
}

TEST(Framing, StoredFramesOfAnySizeAreValid) {
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
