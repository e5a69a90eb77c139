// Append: stores the header and footer of a frame around a payload (record/framing.h).
#pragma once

#include <cstdint>

#include "record/framing.h"

namespace fastrec {

// `frame` is the start of a frame with a payload of `length` bytes. store_footer()
// reads the payload for its checksum.
void store_header(std::uint64_t length, std::uint8_t* frame);
void store_footer(std::uint64_t length, std::uint8_t* frame);

}  // namespace fastrec
