// BatchDecoder: places of records -> a batch.
//
// Each file of a data set has one of several schemas, nearly always the same. The rows
// of one schema are one part of a batch; Python joins the parts. A decoder keeps memory
// from batch to batch, so each thread has its own.
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

// The files of a data set, and how each is read.
struct Sources {
  std::shared_ptr<FileTable> files;
  std::vector<std::shared_ptr<const Schema>> schemas;
  std::vector<std::size_t> schema_of;  // by file; empty: there is one schema
  std::size_t padded_bytes_max = BatchBuilder::kPaddedBytesMax;
  std::shared_ptr<KeyWatch> watch = nullptr;  // of decoded records, if any
};

// The rows of a batch that are of one schema.
struct Part {
  std::size_t schema = 0;
  Batch batch;
  std::vector<std::int64_t> rows;  // where they stand; empty: there is one part
};

// What becomes of a row whose record cannot be read.
enum class OnDamage : std::uint8_t {
  kRaise,  // its Error is thrown
  kSkip,   // it is left out: later rows move up
  kMask,   // it is filled as an empty row
};

template <>
struct Names<OnDamage> {
  static constexpr const char* kAll[] = {"raise", "skip", "mask"};
};

// A row that was skipped or masked.
struct Damage {
  std::size_t row = 0;  // among the places
  Frame frame;
  Error error;
};

class BatchDecoder {
 public:
  BatchDecoder(std::shared_ptr<const Sources> sources,
               const std::shared_ptr<BlockPool>& pool);

  // One row for each place, in order, and empty rows up to `n_rows`. There is at least
  // one part; others only if they have rows. Throws IoError, and the Error of the first
  // row that has one, unless `on_damage` appends it to `*damages`; errors of more than
  // one record are always thrown. If the frames are in memory, `frames` is the first
  // one; the others follow it, and there is slack on both sides. Reuses the memory of
  // `old`.
  std::vector<Part> decode(std::span<const Place> places, std::size_t n_rows,
                           const std::uint8_t* frames = nullptr,
                           OnDamage on_damage = OnDamage::kRaise,
                           std::vector<Damage>* damages = nullptr,
                           std::vector<Part> old = {});

 private:
  // What belongs to a schema.
  struct Reading {
    std::shared_ptr<const Schema> schema;
    ExampleDecoder decoder;
    BatchBuilder builder;
    std::size_t n_rows = 0;    // of this batch
    std::size_t n_filled = 0;  // of those
    std::vector<std::int64_t> rows =
        {};  // where they stand, if there are several schemas
  };

  std::size_t schema_of(const Place& place) const;
  void begin(std::span<const Place> places, std::size_t n_rows);
  Error error_of(const Reading& reading, const Place& place, const Fault& fault,
                 Bytes record) const;
  Error located(const Error& error, std::size_t schema, std::span<const Place> places,
                const std::vector<Damage>& skipped) const;
  void end_row(Reading* reading, std::size_t row) const;

  std::shared_ptr<const Sources> sources_;
  RecordReader reader_;
  std::vector<Reading> readings_;
};

}  // namespace fastrec
