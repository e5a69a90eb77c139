// FrameBuffer: records -> frames, one after another, in memory.
//
// The memory comes from a pool: fresh pages cost as much to fill as a record to encode.
// Checksums are of the bytes in the buffer, so a frame is whole even if its source
// changes meanwhile. One thread at a time may use a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "batch/column.h"
#include "batch/slab.h"
#include "encode/encode_batch.h"
#include "record/append.h"

namespace fastrec {

// Frames as they lie in a file; frame i is bytes[offsets[i] .. offsets[i+1]].
struct Frames {
  Array array;
  std::vector<std::uint64_t> offsets;

  std::size_t n_records() const noexcept { return offsets.size() - 1; }
  Bytes bytes() const noexcept { return {array.data, offsets.back()}; }
};

class FrameBuffer {
 public:
  // With room for `n_bytes` at first.
  explicit FrameBuffer(std::shared_ptr<BlockPool> pool, std::size_t n_bytes = 0)
      : frames_(std::move(pool)) {
    if (n_bytes != 0) frames_.extend(n_bytes);
    frames_.clear();
  }

  // Adds a record whose payload `store(std::uint8_t* payload)` makes: it must fill
  // exactly `length` bytes, may write kSlackBytes past them, and must not throw.
  // Nothing is added if memory runs out.
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

  // Adds whole frames whose checksums are right: frame i of them is
  // bytes[offsets[i] .. offsets[i+1]], and they come in the order of `chosen`.
  void add_frames(Bytes bytes, std::span<const std::int64_t> offsets,
                  std::span<const std::int64_t> chosen);

  // Adds the Examples of rows `begin`, `begin + step`, ... below `end`, until the
  // buffer has `n_bytes_wanted`. Returns the first row that is not in it.
  std::size_t add_rows(const BatchEncoder& encoder, std::size_t begin, std::size_t end,
                       std::size_t step, std::uint64_t n_bytes_wanted);

  std::size_t n_records() const noexcept { return offsets_.size() - 1; }
  std::uint64_t n_bytes() const noexcept { return frames_.size(); }

  // Returns all frames; the buffer is then empty.
  Frames take();

 private:
  // Where frames end, so that adding one cannot fail after its bytes are there.
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
