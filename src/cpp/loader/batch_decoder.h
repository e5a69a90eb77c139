// BatchDecoder: frames of records -> a batch.
//
// A dataset has one or more schemas, and each file has one of them. The rows of one
// schema form one part of a batch; Python joins the parts. A decoder reuses its memory
// for every batch, so each thread has its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/names.h"
#include "batch/column.h"
#include "decode/decode.h"
#include "record/reader.h"
#include "survey/key_watch.h"

namespace fastrec {

// The files of a dataset and their schemas.
struct Sources {
  std::shared_ptr<FileTable> files;
  std::vector<std::shared_ptr<const Schema>> schemas;
  std::vector<std::size_t> schema_of;  // by file; empty if there is one schema
  std::size_t padded_bytes_max = BatchBuilder::kPaddedBytesMax;
  std::shared_ptr<KeyWatch> watch = nullptr;  // of decoded records, if any
};

// The rows of a batch that share a schema.
struct Part {
  std::size_t schema = 0;
  Batch batch;
  std::vector<std::int64_t> rows;  // their rows in the batch; empty if it is one part
};

// What to do with a row whose record cannot be read.
enum class RowPolicy : std::uint8_t {
  kRaise,  // throw its Error
  kSkip,   // omit the row
  kMask,   // replace it with an empty row
};

template <>
struct Names<RowPolicy> {
  static constexpr const char* kAll[] = {"raise", "skip", "mask"};
};

// A row that was skipped or masked, and the reason.
struct UnreadableRow {
  std::size_t row = 0;  // index in the frames
  Frame frame;
  Error error;
};

class BatchDecoder {
 public:
  BatchDecoder(std::shared_ptr<const Sources> sources,
               const std::shared_ptr<BlockPool>& pool);

  // Returns one row for each frame, in order, and empty rows up to `n_rows`. There is
  // at least one part; every other part has rows.
  //
  // Throws IoError, and Errors that concern more than one record. If `row_policy` is
  // kRaise, throws the Error of the first unreadable row; otherwise appends it to
  // `*unreadable_rows`. If the frames are in memory, they are contiguous from `bytes`
  // on, with slack on both sides. `rows` are the rows of each record that lists with a
  // reach are read for, if any. Reuses the memory of `old`.
  std::vector<Part> decode(const FrameRuns& frames, std::size_t n_rows,
                           std::span<const RowRange> rows = {},
                           const std::uint8_t* bytes = nullptr,
                           RowPolicy row_policy = RowPolicy::kRaise,
                           std::vector<UnreadableRow>* unreadable_rows = nullptr,
                           std::vector<Part> old = {});

  // Decodes one record by the schema of its file. Returns its columns, in memory of this
  // that is valid until the next call. Throws its Error, and IoError.
  std::span<const Column> decode_row(const Place& place);

 private:
  // The decoder and the rows of one schema.
  struct SchemaState {
    std::shared_ptr<const Schema> schema;
    ExampleDecoder decoder;
    BatchBuilder builder;
    std::size_t n_rows = 0;               // in this batch
    std::size_t n_bytes = 0;              // of their frames
    std::size_t n_filled = 0;             // rows that are complete
    std::vector<std::int64_t> rows = {};  // see Part
  };

  std::size_t schema_of(std::size_t file) const;
  void begin(const FrameRuns& frames, std::size_t n_rows);
  template <typename OnFault>
  std::size_t decode_rows(const FrameRuns& frames, std::span<const RowRange> rows,
                          const std::uint8_t* bytes, const OnFault& on_fault);
  Fault decode_record(Bytes record, bool is_watched, std::size_t schema);
  Error error_of(const SchemaState& state, const Place& place, const Fault& fault,
                 Bytes record) const;
  Error located(const Error& error, std::size_t schema, const FrameRuns& frames,
                const std::vector<UnreadableRow>& skipped) const;
  void end_row(SchemaState* state, std::size_t row) const;

  std::shared_ptr<const Sources> sources_;
  RecordReader reader_;
  FrameRuns one_frame_;  // of decode_row()
  std::vector<SchemaState> states_;
};

}  // namespace fastrec
