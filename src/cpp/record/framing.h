// Framing: bytes of a TFRecord file -> where its records are, and proof of it.
//
//   0               8            12                  12+n           16+n
//   +---------------+------------+------- - - -------+--------------+
//   |  length n     | length crc |  payload          |  payload crc |
//   |  u64 le       | u32 le     |  n bytes          |  u32 le      |
//   +---------------+------------+------- - - -------+--------------+
//    `-- kHeaderBytes = 12 -----'                     `-- kFooterBytes = 4
//
// Frames lie back to back from byte 0 to the end of the file: no magic number, no
// padding, no resynchronisation marker. Both checksums are masked CRC-32C; the first
// covers the 8 length bytes, the second the payload.
//
// Invariants
//   * A length is believed only after its checksum and its bounds were checked.
//   * Bounds are checked by subtraction, because a length may be near 2^64.
//
// This module knows bytes and checksums. It does not know what a record means.
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

// protobuf cannot read a larger message, so no record of examples can be larger.
inline constexpr std::uint64_t kMaxPayloadBytes = (std::uint64_t{1} << 31) - 1;

// Where one record is: its frame begins at byte `offset` of the file, and its payload
// has `length` bytes.
struct Frame {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  std::uint64_t payload() const noexcept { return offset + kHeaderBytes; }
  std::uint64_t size() const noexcept { return length + kFrameBytes; }
  std::uint64_t end() const noexcept { return offset + size(); }
};

// Reads the header at `bytes`, the first of `remaining` bytes up to the end of the
// file. At least min(remaining, kHeaderBytes) of them must be readable.
//
// `*length` is 0 when a Fault is returned. Offsets of faults count from the beginning
// of the frame.
inline Fault check_header(const std::uint8_t* bytes, std::uint64_t remaining,
                          std::uint64_t* length);

// Checks the payload in a whole frame, whose header has been checked.
inline Fault check_payload(Bytes frame);

// What the beginning of a file looks like, whatever its name says.
enum class Content : std::uint8_t { kEmpty, kTfrecord, kGzip, kZlib, kText, kUnknown };

template <>
struct Names<Content> {
  static constexpr const char* kAll[] = {"empty", "tfrecord", "gzip",
                                         "zlib",  "text",     "unknown"};
};

// Judges a file by its first bytes; kRecognizeBytes of them are enough.
inline constexpr std::size_t kRecognizeBytes = 64;
Content recognize(Bytes beginning);

// A checksum that fails in the very first header says more about the kind of file
// than about damage. Describes such a file, and sets the code of the fault.
std::string describe_foreign(Content content, Fault* fault);

// What is wrong with a header, or a payload, that is not intact.
Fault header_fault(const std::uint8_t* bytes, std::uint64_t remaining);
Fault payload_fault(Bytes frame);

inline Fault check_header(const std::uint8_t* bytes, std::uint64_t remaining,
                          std::uint64_t* length) {
  if (remaining >= kFrameBytes) [[likely]] {
    // The length is checked before it is used: a damaged length would otherwise make
    // every later frame of the file look damaged too.
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
