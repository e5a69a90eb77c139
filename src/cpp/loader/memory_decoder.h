// MemoryDecoder: serialized records in memory -> a batch.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "batch/column.h"
#include "decode/decode.h"
#include "file/buffer.h"

namespace fastrec {

// Reuses its memory, so each thread has its own.
class MemoryDecoder {
 public:
  MemoryDecoder(const std::shared_ptr<const Schema>& schema,
                std::shared_ptr<BlockPool> pool)
      : decoder_(schema), builder_(schema, std::move(pool)) {}

  // Returns a row for each record. Other threads may write to the records. Throws the
  // Error of the first unreadable record: its number in `records`, the offset in it.
  Batch decode(std::span<const Bytes> records);

  // Returns the columns of one record, in memory that is valid until the next call.
  std::span<const Column> decode_row(Bytes record);

 private:
  void add(std::span<const Bytes> records);

  ExampleDecoder decoder_;
  BatchBuilder builder_;
  Buffer copy_;  // of a record
};

}  // namespace fastrec
