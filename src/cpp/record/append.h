// Append: the two ends of a frame, stored around a payload.
//
// record/framing.h shows a frame. The checksum is of the payload bytes in place.
#pragma once

#include <cstdint>

#include "record/framing.h"

namespace fastrec {

// Of a payload of `length` bytes: header to `frame`, footer behind the payload, which
// must be complete.
void store_header(std::uint64_t length, std::uint8_t* frame);
void store_footer(std::uint64_t length, std::uint8_t* frame);

}  // namespace fastrec
