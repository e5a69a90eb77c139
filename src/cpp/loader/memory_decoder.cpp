#include "loader/memory_decoder.h"

#include <algorithm>

#include "decode/mapped_path.h"
#include "survey/advice.h"
#include "survey/foreign.h"

namespace fastrec {

void MemoryDecoder::add(std::span<const Bytes> records) {
  builder_.begin(records.size());
  for (std::size_t row = 0; row < records.size(); ++row) {
    const Bytes record = records[row];
    const bool is_large = record.size() >= MappedPath::kMinFrameBytes;
    if (is_large && decoder_.decode_unframed(record, row, &builder_)) continue;
    const MutableBytes copy = copy_.room(record.size());
    std::ranges::copy(record, copy.begin());
    Fault fault = decoder_.decode(BytesWithSlack(copy), row, &builder_);
    if (!fault && decoder_.has_found_nothing()) fault = check_example(copy);
    if (!fault) continue;
    Error error = explain(decoder_.schema(), fault, copy);
    error.record = row;
    error.offset = fault.offset;
    throw error;
  }
}

Batch MemoryDecoder::decode(std::span<const Bytes> records) {
  add(records);
  return builder_.finish(records.size());
}

std::span<const Column> MemoryDecoder::decode_row(Bytes record) {
  add({&record, 1});
  return builder_.finish_row();
}

}  // namespace fastrec
