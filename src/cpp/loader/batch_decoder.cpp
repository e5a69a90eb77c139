#include "loader/batch_decoder.h"

#include <utility>

namespace fastrec {

BatchDecoder::BatchDecoder(std::shared_ptr<FileTable> files,
                           std::shared_ptr<const Schema> schema,
                           std::shared_ptr<BlockPool> pool)
    : files_(files),
      reader_(std::move(files)),
      decoder_(schema),
      builder_(schema, std::move(pool)),
      schema_(std::move(schema)) {}

Batch BatchDecoder::decode(std::span<const Place> places) {
  builder_.begin(places.size());
  reader_.start(places);
  for (std::size_t row = 0; row < places.size(); ++row) {
    const Place& place = places[row];
    Bytes record;
    Fault fault = reader_.next(&record);
    if (!fault) {
      fault = decoder_.decode(record, row, &builder_);
      fault.offset += place.frame.payload();
    }
    if (fault) {
      Error error = record_error(fault, decoder_.describe(fault), place, *files_);
      if (fault.column >= 0) {
        error.feature = schema_->columns[static_cast<std::size_t>(fault.column)].key;
      }
      throw error;
    }
  }
  return builder_.finish(places.size());
}

}  // namespace fastrec
