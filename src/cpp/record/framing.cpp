#include "record/framing.h"

#include <algorithm>
#include <limits>

namespace fastrec {

Fault header_fault(const std::uint8_t* bytes, std::uint64_t remaining) {
  if (remaining < kHeaderBytes) {
    return {
        .code = Errc::kTruncatedHeader, .found = remaining, .expected = kHeaderBytes};
  }
  const auto stored = load_le<std::uint32_t>(bytes + kLengthBytes);
  const std::uint32_t computed = crc32c_mask(crc32c({bytes, kLengthBytes}));
  if (stored != computed) {
    return {.code = Errc::kLengthCrc, .found = stored, .expected = computed};
  }
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const auto claimed = load_le<std::uint64_t>(bytes);
  return {.code = Errc::kTruncatedPayload,
          .found = remaining - kHeaderBytes,
          .expected = std::min(claimed, kMax - kFooterBytes) + kFooterBytes};
}

Fault payload_fault(Bytes frame) {
  const std::size_t end = frame.size() - kFooterBytes;
  const Bytes payload = frame.subspan(kHeaderBytes, end - kHeaderBytes);
  return {.code = Errc::kPayloadCrc,
          .offset = kHeaderBytes,
          .found = load_le<std::uint32_t>(frame.data() + end),
          .expected = crc32c_mask(crc32c(payload))};
}

void store_header(std::uint64_t length, std::uint8_t* frame) {
  store_le(frame, length);
  store_le(frame + kLengthBytes, crc32c_mask(crc32c({frame, kLengthBytes})));
}

void store_footer(std::uint64_t length, std::uint8_t* frame) {
  const Bytes payload(frame + kHeaderBytes, length);
  store_le(frame + kHeaderBytes + length, crc32c_mask(crc32c(payload)));
}

Content recognize(Bytes beginning) {
  if (beginning.empty()) return Content::kEmpty;
  std::uint64_t length;
  const Fault fault = check_header(beginning.data(), beginning.size(), &length);
  // The length of a truncated payload is verified too.
  if (!fault || fault.code == Errc::kTruncatedPayload) return Content::kTfrecord;

  const unsigned first = beginning[0];
  const unsigned second = beginning.size() > 1 ? beginning[1] : 0;
  if (first == 0x1f && second == 0x8b) return Content::kGzip;

  const auto are_all = [&](unsigned most) {
    return std::all_of(beginning.begin(), beginning.end(), [most](unsigned c) {
      return (c >= 0x20 && c != 0x7f && c <= most) || (c >= '\t' && c <= '\r');
    });
  };
  // RFC 1950: deflate with a window of up to 32 KiB, and a header that is a multiple of
  // 31. One in 31 ASCII texts that begin with an "x" would match, so they are excluded.
  const bool is_zlib =
      (first & 0x0f) == 8 && (first >> 4) <= 7 && (first * 256 + second) % 31 == 0;
  if (is_zlib && !are_all(0x7f)) return Content::kZlib;
  return are_all(0xff) ? Content::kText : Content::kUnknown;
}

std::string describe_foreign(Content content, Fault* fault) {
  switch (content) {
    case Content::kGzip:
      fault->code = Errc::kCompressed;
      return "this is a GZIP file: open it with compression=\"auto\"";
    case Content::kZlib:
      fault->code = Errc::kCompressed;
      return "this looks like a ZLIB stream: open it with compression=\"auto\"";
    case Content::kText:
      fault->code = Errc::kNotTfrecord;
      return "not a TFRecord file: it looks like text";
    case Content::kEmpty:
    case Content::kTfrecord:
    case Content::kUnknown:
      break;
  }
  return describe(*fault) + "; this may not be a TFRecord file";
}

}  // namespace fastrec
