// Tests of entry headers.
//
// Goal: a header and its payload form a plain entry, and its lengths are at the
// recorded offsets. Method: keys, kinds and payloads around the sizes at which a length
// grows by a byte, read back by wire/plain.h.

#include "wire/entry.h"

#include <gtest/gtest.h>

#include <string>

#include "wire/plain.h"

namespace fastrec {
namespace {

TEST(Entry, HeaderAndPayloadAreAPlainEntry) {
  for (const std::size_t n_key : {0u, 1u, 50u, 113u, 127u, 128u, 16384u}) {
    for (const std::size_t n_payload : {0u, 1u, 3u, 60u, 124u, 128u, 300u, 16400u}) {
      for (const FeatureKind kind :
           {FeatureKind::kBytes, FeatureKind::kFloat, FeatureKind::kInt64}) {
        const std::string key(n_key, 'k');
        const EntryHeader header = entry_header(as_bytes(key), kind, n_payload);
        std::vector<std::uint8_t> bytes = header.bytes;
        bytes.resize(bytes.size() + n_payload, 7);
        const std::uint8_t* const end = bytes.data() + bytes.size();

        Bytes entry, found_key, feature, list, payload;
        ASSERT_TRUE(find_plain_field(bytes, kTagOne, &entry));
        ASSERT_TRUE(find_plain_entry(entry, &found_key, &feature));
        ASSERT_TRUE(find_plain_list(feature, kind, &list));
        ASSERT_TRUE(find_plain_field(list, kTagOne, &payload));
        EXPECT_EQ(as_text(found_key), key);
        EXPECT_EQ(payload.size(), n_payload);
        EXPECT_EQ(payload.data(), bytes.data() + header.bytes.size());

        const std::size_t sizes[] = {entry.size(), feature.size(), list.size(),
                                     n_payload};
        for (std::size_t i = 0; i < header.lengths.size(); ++i) {
          std::uint64_t length;
          ASSERT_NE(read_length(bytes.data() + header.lengths[i], end, &length),
                    nullptr);
          EXPECT_EQ(length, sizes[i]);
        }
      }
    }
  }
}

// decode/plan.h relies on this.
TEST(Entry, HeaderOfAShortPayloadIsTheEmptyHeaderPlusItsSize) {
  const EntryHeader empty = entry_header(as_bytes("key"), FeatureKind::kInt64, 0);
  for (std::uint8_t n = 0; n < 100; ++n) {
    EntryHeader expected = empty;
    for (const std::size_t at : expected.lengths) expected.bytes[at] += n;
    const EntryHeader header = entry_header(as_bytes("key"), FeatureKind::kInt64, n);
    EXPECT_EQ(header.bytes, expected.bytes);
    EXPECT_EQ(header.lengths, expected.lengths);
  }
}

}  // namespace
}  // namespace fastrec
