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
#include "record/append.h"

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
    if (n_bytes != 0) frames_.extend(n_bytes);
    frames_.clear();
  }

  // Adds a record whose payload `store(std::uint8_t* payload)` writes: exactly `length`
  // bytes, and up to kSlackBytes past them. `store` must not throw. If memory runs out,
  // the buffer is unchanged.
  static constexpr std::size_t kSlackBytes = BatchEncoder::kSlackBytes;
  template <typename Store>
  void add(std::uint64_t length, const Store& store) {
    const std::size_t begin = frames_.size();
    const std::size_t n_bytes = kFrameBytes + length;
    offsets_.reserve_one();
    std::uint8_t* frame = frames_.extend(n_bytes + kSlackBytes);
    frames_.retract(kSlackBytes);
    store_header(length, frame);
    store(frame + kHeaderBytes);
    store_footer(length, frame);
    offsets_.push(begin + n_bytes);
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
  // The end of each frame. Reserving first means that adding a frame cannot fail after
  // its bytes are stored.
  class Offsets {
   public:
    void reserve_one() {
      if (ends_.size() == ends_.capacity()) ends_.reserve(2 * ends_.capacity());
    }
    void push(std::uint64_t end) noexcept { ends_.push_back(end); }
    std::size_t size() const noexcept { return ends_.size(); }
    std::vector<std::uint64_t> take();

   private:
    std::vector<std::uint64_t> ends_ = {0};
  };

  GrowingArray frames_;
  Offsets offsets_;
  BatchEncoder::Tile tile_;
};

}  // namespace fastrec
