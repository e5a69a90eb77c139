// MappedPath: a large frame in mapped memory -> one row of a batch, in one pass.
//
// A large value of the plain form (wire/plain.h) that its column takes as it is goes
// from the mapping to the column while its checksum is computed. What precedes, follows
// or separates such values is copied to private memory, and decoded there:
//
//   | header | entries | large value | entries | large value | entries | footer |
//     private            to its column           to its column
//
// Another process may write to the file meanwhile. Each byte of the frame that is
// decoded or delivered is read once, and that very byte goes through the checksum. The
// row may be used once the checksum has proven it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "crc32c/crc32c.h"
#include "decode/feature_decoder.h"
#include "decode/plan.h"
#include "file/buffer.h"
#include "wire/key_table.h"

namespace fastrec {

class MappedPath {
 public:
  // Smaller frames are copied, verified and decoded in the first-level cache.
  static constexpr std::size_t kMinFrameBytes = std::size_t{16} << 10;

  // `schema`, which FastPath::can_read(), must outlive this.
  explicit MappedPath(const Schema& schema);

  // Whether the next frame is worth a try: not if those before it had few bytes in
  // large values.
  bool tries_next() noexcept {
    if (n_declined_ > 0) --n_declined_;
    return n_declined_ == 0;
  }

  // Decodes `frame` into row `row` of `batch`. False if it cannot be proven: the row
  // then holds anything, and must be rewound.
  bool decode(Bytes frame, std::size_t row, FeatureDecoder* decoder,
              BatchBuilder* batch);

 private:
  struct Field;
  struct Progress;

  bool read(FeatureDecoder* decoder, Progress* progress);
  bool read_large(const Field& entry, Progress* progress);
  bool mark(std::uint32_t column);

  const Crc32cKernel& kernel_ = crc32c_kernel();
  KeyTable keys_;                   // by column
  std::vector<PlanEntry> entries_;  // by column
  Buffer buffer_;
  std::vector<std::uint64_t> marks_;  // by column: the number of the last frame with it
  std::uint64_t n_frames_ = 0;
  std::size_t n_marked_ = 0;    // columns that the frame has
  std::size_t n_failures_ = 0;  // frames in a row that were not worth it
  std::size_t n_declined_ = 0;  // frames to come that are not tried
};

}  // namespace fastrec
