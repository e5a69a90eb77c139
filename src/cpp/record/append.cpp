#include "record/append.h"

#include "base/bytes.h"
#include "crc32c/crc32c.h"

namespace fastrec {

void store_header(std::uint64_t length, std::uint8_t* frame) {
  store_le(frame, length);
  store_le(frame + kLengthBytes, crc32c_mask(crc32c({frame, kLengthBytes})));
}

void store_footer(std::uint64_t length, std::uint8_t* frame) {
  const Bytes payload(frame + kHeaderBytes, length);
  store_le(frame + kHeaderBytes + length, crc32c_mask(crc32c(payload)));
}

}  // namespace fastrec
