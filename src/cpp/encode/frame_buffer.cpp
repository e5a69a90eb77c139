#include "encode/frame_buffer.h"

#include <algorithm>
#include <utility>

namespace fastrec {

void FrameBuffer::add(Bytes payload) {
  add(payload.size(),
      [payload](std::uint8_t* to) { std::copy(payload.begin(), payload.end(), to); });
}

void FrameBuffer::add_frames(Bytes bytes, std::span<const std::int64_t> offsets,
                             std::span<const std::int64_t> indices) {
  for (const std::int64_t i : indices) {
    const auto frame = static_cast<std::size_t>(i);
    const auto begin = static_cast<std::size_t>(offsets[frame]);
    const std::size_t n_bytes = static_cast<std::size_t>(offsets[frame + 1]) - begin;
    std::copy_n(bytes.data() + begin, n_bytes, frames_.reserve(n_bytes));
    end_frame(n_bytes);
  }
}

std::size_t FrameBuffer::add_rows(const BatchEncoder& encoder, std::size_t begin,
                                  std::size_t end, std::size_t step,
                                  std::uint64_t target_bytes) {
  std::size_t row = begin;
  while (row < end && n_bytes() < target_bytes) {
    encoder.load(row, end, step, &tile_);
    for (std::size_t i = 0; i < tile_.n_rows() && n_bytes() < target_bytes; ++i) {
      add(encoder.measure(i, &tile_),
          [&](std::uint8_t* payload) { encoder.store(i, tile_, payload); });
      row += step;
    }
  }
  return row;
}

Frames FrameBuffer::take() {
  frames_.reserve(0);  // allocates a block even without frames
  std::vector<std::uint64_t> offsets;
  offsets.reserve(offsets_.size());
  offsets.push_back(0);
  offsets.swap(offsets_);
  return {frames_.release(), std::move(offsets)};
}

}  // namespace fastrec
