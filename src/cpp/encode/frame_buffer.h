// FrameBuffer: records -> consecutive frames in memory.
//
// The memory comes from a pool, because filling a fresh page costs as much as encoding
// a record. Checksums cover the bytes in the buffer, so a frame is valid even if its
// source changes meanwhile. Only one thread at a time may use a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "batch/growing_array.h"
#include "batch/slab.h"
#include "encode/encode_batch.h"
#include "record/framing.h"

namespace fastrec {

// Frames in the format of a file; frame i is bytes[offsets[i] .. offsets[i+1]].
struct Frames {
  Array array;
  std::vector<std::uint64_t> offsets;

  std::size_t n_records() const noexcept { return offsets.size() - 1; }
  Bytes bytes() const noexcept { return {array.data, offsets.back()}; }
};

class FrameBuffer {
 public:
  // Reserves `n_bytes`.
  explicit FrameBuffer(std::shared_ptr<BlockPool> pool, std::size_t n_bytes = 0)
      : frames_(std::move(pool)) {
    if (n_bytes != 0) frames_.reserve(n_bytes);
  }

  // Adds a record whose payload `store(std::uint8_t* payload)` writes: exactly `length`
  // bytes, and up to kSlackBytes past them. `store` must not throw. If memory runs out,
  // the buffer is unchanged.
  static constexpr std::size_t kSlackBytes = BatchEncoder::kSlackBytes;
  template <typename Store>
  void add(std::uint64_t length, const Store& store) {
    const std::size_t n_bytes = kFrameBytes + length;
    std::uint8_t* frame = frames_.reserve(n_bytes + kSlackBytes);
    store_header(length, frame);
    store(frame + kHeaderBytes);
    store_footer(length, frame);
    end_frame(n_bytes);
  }

  void add(Bytes payload);

  // Adds the frames `indices`, in that order, of frames with valid checksums: frame i
  // is bytes[offsets[i] .. offsets[i+1]].
  void add_frames(Bytes bytes, std::span<const std::int64_t> offsets,
                  std::span<const std::int64_t> indices);

  // Adds the Examples of rows `begin`, `begin + step`, ... below `end`, until the
  // buffer has `target_bytes`. Returns the first row that was not added.
  std::size_t add_rows(const BatchEncoder& encoder, std::size_t begin, std::size_t end,
                       std::size_t step, std::uint64_t target_bytes);

  std::size_t n_records() const noexcept { return offsets_.size() - 1; }
  std::uint64_t n_bytes() const noexcept { return frames_.size(); }

  // Returns all frames and empties the buffer.
  Frames take();

 private:
  // Adds a frame whose bytes are stored. If memory runs out, the buffer is unchanged.
  void end_frame(std::size_t n_bytes) {
    offsets_.push_back(frames_.size() + n_bytes);
    frames_.advance(n_bytes);
  }

  GrowingArray frames_;
  std::vector<std::uint64_t> offsets_ = {0};
  BatchEncoder::Tile tile_;
};

}  // namespace fastrec
