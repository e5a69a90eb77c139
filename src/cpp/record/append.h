// Append: payloads of records -> frames at the end of a buffer.
//
// The frame is the one that record/framing.h draws. A payload may lie somewhere, or may
// be made in its place, which saves a copy; its checksum is taken of the bytes in the
// buffer either way, so that a frame is whole even if the source changes meanwhile.
//
// Source: tensorflow/core/lib/io/record_writer.h ("Format of a single record").
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "record/framing.h"

namespace fastrec {

// The two ends of a frame, stored around a payload of `length` bytes: header to
// `frame`, footer behind the payload, which must be complete.
void store_header(std::uint64_t length, std::uint8_t* frame);
void store_footer(std::uint64_t length, std::uint8_t* frame);

// Appends a frame whose payload `store(std::uint8_t* payload)` makes: it must fill
// exactly `length` bytes, and not throw. `*out` is untouched if memory runs out.
template <typename Store>
void append_frame(std::uint64_t length, const Store& store,
                  std::vector<std::uint8_t>* out) {
  const std::size_t begin = out->size();
  out->resize(begin + kFrameBytes + length);
  std::uint8_t* frame = out->data() + begin;
  store_header(length, frame);
  store(frame + kHeaderBytes);
  store_footer(length, frame);
}

// Appends the frame of `payload`, which must not lie in `*out`.
void append_frame(Bytes payload, std::vector<std::uint8_t>* out);

}  // namespace fastrec
