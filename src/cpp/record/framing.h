// Framing: bytes of a TFRecord file <-> verified frames.
//
//   0               8            12                  12+n           16+n
//   +---------------+------------+------- - - -------+--------------+
//   |  length n     | length crc |  payload          |  payload crc |
//   |  u64 le       | u32 le     |  n bytes          |  u32 le      |
//   +---------------+------------+------- - - -------+--------------+
//    `-- kHeaderBytes = 12 -----'                     `-- kFooterBytes = 4
//
// Frames are contiguous from byte 0 to the end of the file: no magic number, no
// padding, no resynchronisation marker. Both checksums are masked CRC-32C, of the 8
// length bytes and of the payload.
//
// Invariants
//   * A length is used only after its checksum and its bounds were checked.
//   * Bounds are checked by subtraction, because a length may be near 2^64.
//
// Source: tensorflow/core/lib/io/record_writer.h ("Format of a single record").
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/names.h"
#include "crc32c/crc32c.h"

namespace fastrec {

inline constexpr std::uint64_t kLengthBytes = 8;
inline constexpr std::uint64_t kHeaderBytes = kLengthBytes + 4;
inline constexpr std::uint64_t kFooterBytes = 4;
inline constexpr std::uint64_t kFrameBytes = kHeaderBytes + kFooterBytes;

// The limit of a protobuf message, and so of an Example.
inline constexpr std::uint64_t kMaxPayloadBytes = (std::uint64_t{1} << 31) - 1;

// A frame at byte `offset` of the file with a payload of `length` bytes.
struct Frame {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  std::uint64_t payload() const noexcept { return offset + kHeaderBytes; }
  std::uint64_t size() const noexcept { return length + kFrameBytes; }
  std::uint64_t end() const noexcept { return offset + size(); }
};

// Verifies the header at `bytes`, with `remaining` bytes before the end of the file. At
// least min(remaining, kHeaderBytes) bytes must be readable.
//
// On a fault, `*length` is 0. Offsets of faults count from the beginning of the frame.
inline Fault check_header(const std::uint8_t* bytes, std::uint64_t remaining,
                          std::uint64_t* length);

// Verifies the payload of a complete frame with a verified header.
inline Fault check_payload(Bytes frame);

// Store the header and the footer of the frame that begins at `frame`, with a payload
// of `length` bytes. store_footer() reads the payload for its checksum.
void store_header(std::uint64_t length, std::uint8_t* frame);
void store_footer(std::uint64_t length, std::uint8_t* frame);

// The kind of a file, detected from its first bytes.
enum class Content : std::uint8_t { kEmpty, kTfrecord, kGzip, kZlib, kText, kUnknown };

template <>
struct Names<Content> {
  static constexpr const char* kAll[] = {"empty", "tfrecord", "gzip",
                                         "zlib",  "text",     "unknown"};
};

// Detects the kind of a file from its first kRecognizeBytes.
inline constexpr std::size_t kRecognizeBytes = 64;
Content recognize(Bytes beginning);

// The message for a file whose first header is invalid, which may be another kind of
// file. Sets the code of the fault.
std::string describe_foreign(Content content, Fault* fault);

// The slow paths of check_header() and check_payload(), for invalid ones.
Fault header_fault(const std::uint8_t* bytes, std::uint64_t remaining);
Fault payload_fault(Bytes frame);

inline Fault check_header(const std::uint8_t* bytes, std::uint64_t remaining,
                          std::uint64_t* length) {
  if (remaining >= kFrameBytes) [[likely]] {
    // A damaged length must not be used: all later frames would look damaged too.
    const auto stored = load_le<std::uint32_t>(bytes + kLengthBytes);
    const auto claimed = load_le<std::uint64_t>(bytes);
    if (stored == crc32c_mask(crc32c({bytes, kLengthBytes})) &&
        claimed <= remaining - kFrameBytes) [[likely]] {
      *length = claimed;
      return {};
    }
  }
  *length = 0;
  return header_fault(bytes, remaining);
}

inline Fault check_payload(Bytes frame) {
  const std::size_t end = frame.size() - kFooterBytes;
  const Bytes payload = frame.subspan(kHeaderBytes, end - kHeaderBytes);
  const auto stored = load_le<std::uint32_t>(frame.data() + end);
  if (stored == crc32c_mask(crc32c(payload))) [[likely]]
    return {};
  return payload_fault(frame);
}

}  // namespace fastrec
