// MappedPath: a large frame in shared memory -> one row of a batch, in one pass.
//
// A large value of the plain form (wire/plain.h) that needs no conversion is copied
// from the mapping to its column while its checksum is computed, and so are the large
// strings of a list. Everything else is copied to private memory and decoded there:
//
//   | header | entries | large value | entries | large value | entries | footer |
//     private            to its column           to its column
//
// Another process may write to the file meanwhile. So each byte of the frame is read
// once: the byte that is decoded or delivered is the byte that is checksummed. The row
// is valid once the checksum matches. A record in memory of the caller, which other
// threads may change, is read in the same way, without header, footer and checksum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "crc32c/crc32c.h"
#include "decode/back_off.h"
#include "decode/feature_decoder.h"
#include "decode/plan.h"
#include "file/buffer.h"

namespace fastrec {

class MappedPath {
 public:
  // Smaller frames are copied, verified and decoded in the L1 cache.
  static constexpr std::size_t kMinFrameBytes = 512;

  // ColumnLookup::can_hold() must be true for `schema`, which must outlive this.
  explicit MappedPath(const Schema& schema) : lookup_(schema) {}

  // Whether to try the next frame. False for a while after frames with few bytes in
  // large values.
  bool tries_next() noexcept { return back_off_.tries_next(); }

  // Decodes `frame`, or a record unless it `is_framed`, into row `row` of `batch`. False
  // if it cannot verify and decode it; the row is then unspecified and must be rewound.
  bool decode(Bytes frame, bool is_framed, std::size_t row, FeatureDecoder* decoder,
              BatchBuilder* batch);

 private:
  struct Field;
  struct Progress;

  bool read(FeatureDecoder* decoder, Progress* progress);
  bool read_large(const Field& entry, Progress* progress);
  bool read_strings(const Field& list, std::uint32_t column, Progress* progress);

  const Crc32cKernel& kernel_ = crc32c_kernel();
  const PlanKernel& plan_ = plan_kernel();
  Buffer buffer_;
  ColumnLookup lookup_;
  BackOff back_off_;  // fails for frames that are slower this way
};

}  // namespace fastrec
