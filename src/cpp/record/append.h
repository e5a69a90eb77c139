// Append: the two ends of a frame, stored around a payload.
//
// The frame is the one that record/framing.h draws.
//
// Source: tensorflow/core/lib/io/record_writer.h ("Format of a single record").
#pragma once

#include <cstdint>

#include "record/framing.h"

namespace fastrec {

// Of a payload of `length` bytes: header to `frame`, and behind the payload the footer,
// which holds the checksum `crc` of the bytes that are there.
void store_header(std::uint64_t length, std::uint8_t* frame);
void store_footer(std::uint64_t length, std::uint32_t crc, std::uint8_t* frame);

}  // namespace fastrec
