// Append: the two ends of a frame, stored around a payload.
//
// The frame is the one that record/framing.h draws. A payload is made in its place, and
// its checksum is taken of the bytes there.
//
// Source: tensorflow/core/lib/io/record_writer.h ("Format of a single record").
#pragma once

#include <cstdint>

#include "record/framing.h"

namespace fastrec {

// Of a payload of `length` bytes: header to `frame`, footer behind the payload, which
// must be complete.
void store_header(std::uint64_t length, std::uint8_t* frame);
void store_footer(std::uint64_t length, std::uint8_t* frame);

}  // namespace fastrec
