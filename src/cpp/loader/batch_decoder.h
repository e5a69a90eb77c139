// BatchDecoder: places of records -> a batch.
//
// Has the memory that decoding needs from batch to batch, so each thread has its own.
#pragma once

#include <memory>
#include <span>

#include "batch/column.h"
#include "example/decode.h"
#include "record/reader.h"

namespace fastrec {

class BatchDecoder {
 public:
  BatchDecoder(std::shared_ptr<FileTable> files, std::shared_ptr<const Schema> schema,
               std::shared_ptr<BlockPool> pool);

  // One row for each place, in their order. Throws the Error of the first row that has
  // one, and IoError.
  Batch decode(std::span<const Place> places);

 private:
  std::shared_ptr<FileTable> files_;
  RecordReader reader_;
  ExampleDecoder decoder_;
  BatchBuilder builder_;
  std::shared_ptr<const Schema> schema_;
};

}  // namespace fastrec
