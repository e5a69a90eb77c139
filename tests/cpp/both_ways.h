// BothWays: records -> proof that the fast ways of ExampleDecoder give the columns or the
// fault of its general decoder, the reference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "decode/decode.h"
#include "file/buffer.h"

namespace fastrec::testing {

inline void append_content(std::span<const Column> columns, std::size_t n_rows,
                           const Schema& schema, std::vector<std::uint8_t>* content) {
  const auto append = [&](const Column::Array& array, std::size_t n_bytes) {
    content->insert(content->end(), array.data, array.data + n_bytes);
  };
  for (std::size_t c = 0; c < schema.columns.size(); ++c) {
    const Column& column = columns[c];
    const ColumnSpec& spec = schema.columns[c];
    if (spec.slot != 0) continue;  // in the array of the first one
    std::size_t value_bytes = column.n_values * spec.item_bytes;
    if (spec.dtype == DType::kBytes) {
      append(column.offsets, (column.n_values + 1) * 8);
      std::int64_t end;
      std::memcpy(&end, column.offsets.data + column.n_values * 8, sizeof end);
      value_bytes = static_cast<std::size_t>(end);
    }
    append(column.values, value_bytes);
    if (spec.has_row_splits()) append(column.row_splits, (n_rows + 1) * 8);
    if (spec.reach) append(column.extents, n_rows * 16);
  }
}

inline std::vector<std::uint8_t> content_of(std::span<const Column> columns,
                                            std::size_t n_rows, const Schema& schema) {
  std::vector<std::uint8_t> content;
  append_content(columns, n_rows, schema, &content);
  return content;
}

inline std::vector<std::uint8_t> content_of(const Batch& batch, const Schema& schema) {
  return content_of(batch.columns, batch.n_rows, schema);
}

// A pool that all decoders share, because fresh blocks cost more than decoding.
inline std::shared_ptr<BlockPool> shared_pool() {
  static const auto pool = std::make_shared<BlockPool>(1 << 20);
  return pool;
}

// Decodes records both ways. May be used repeatedly, and reuses its memory.
class BothWays {
 public:
  explicit BothWays(std::shared_ptr<const Schema> schema)
      : schema_(std::move(schema)),
        builder_(schema_, shared_pool()),
        reference_(schema_) {}

  bool is_same(const std::vector<Bytes>& records) {
    // The fast ways learn from records, so a new decoder must see only these.
    ExampleDecoder fast(schema_);
    decode(&fast, true, records, &found_);
    decode(&reference_, false, records, &expected_);
    return found_.bytes == expected_.bytes && found_.ends == expected_.ends;
  }

 private:
  // The bytes of batches and faults, one after another.
  struct Contents {
    std::vector<std::uint8_t> bytes;
    std::vector<std::size_t> ends;
  };

  // Decodes `records` in order; if it `is_fast`, pairs where it can. A fault ends a batch.
  void decode(ExampleDecoder* decoder, bool is_fast, const std::vector<Bytes>& records,
              Contents* contents) {
    std::vector<std::uint8_t>& bytes = contents->bytes;
    bytes.clear();
    contents->ends.clear();
    const std::vector<Bytes> copies = copies_of(records);
    std::size_t n_rows = 0;
    builder_.begin(records.size());
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (is_fast && i + 1 < copies.size() &&
          decoder->decode_pair(BytesWithSlack(copies[i]), BytesWithSlack(copies[i + 1]),
                               n_rows, &builder_)) {
        n_rows += 2;
        ++i;
        continue;
      }
      const BytesWithSlack record(copies[i]);
      const Fault fault = is_fast ? decoder->decode(record, n_rows, &builder_)
                                  : decoder->decode_any(record, n_rows, &builder_);
      if (!fault) {
        ++n_rows;
        continue;
      }
      const std::uint64_t parts[] = {static_cast<std::uint64_t>(fault.code),
                                     static_cast<std::uint64_t>(fault.column),
                                     fault.offset, fault.found, fault.expected};
      const auto* begin = reinterpret_cast<const std::uint8_t*>(parts);
      bytes.insert(bytes.end(), begin, begin + sizeof parts);
      contents->ends.push_back(bytes.size());
      builder_.begin(records.size());
      n_rows = 0;
    }
    batch_ = builder_.finish(n_rows, std::move(batch_));
    append_content(batch_.columns, n_rows, *schema_, &bytes);
    contents->ends.push_back(bytes.size());
  }

  // Copies of the records, each with slack.
  std::vector<Bytes> copies_of(const std::vector<Bytes>& records) {
    std::size_t n_bytes = 0;
    for (const Bytes record : records) n_bytes += record.size() + Buffer::kSlackBytes;
    std::uint8_t* next = buffer_.room(n_bytes).data();
    std::vector<Bytes> copies;
    for (const Bytes record : records) {
      std::copy(record.begin(), record.end(), next);
      copies.emplace_back(next, record.size());
      next += record.size() + Buffer::kSlackBytes;
    }
    return copies;
  }

  std::shared_ptr<const Schema> schema_;
  BatchBuilder builder_;
  ExampleDecoder reference_;
  Buffer buffer_;
  Batch batch_;
  Contents found_, expected_;
};

inline bool is_same_both_ways(const std::shared_ptr<const Schema>& schema,
                              const std::vector<Bytes>& records) {
  return BothWays(schema).is_same(records);
}

}  // namespace fastrec::testing
