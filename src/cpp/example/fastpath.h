// Fastpath: a record of the form that all writers write -> one row of a batch.
//
// That form is one message of features, in plain entries (plain.h), no key twice. A
// record of it is read in one pass: each entry goes straight to its column. Which entry
// comes next is predicted, because nearly all writers repeat the order of their
// features; some write another order each time, and then keys are looked up by a hash
// of their length and their last bytes.
//
// The entry of one number is known in advance but for the number:
//
//   0a E  0a n key  12 V  12|1a L  0a P  payload       E = n + 8 + P, V = 4 + P, L = 2
//   + P
//
// so all of it is proven at once, by comparing words, from P alone. Any other entry is
// read part by part, and its feature decoded as in any record.
//
// Whatever cannot be proven here is for ExampleDecoder to read: nothing is guessed, and
// no fault is told from here.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "example/feature_decoder.h"

namespace fastrec {

class FastPath {
 public:
  // Whether records are read this way at all: not those of SequenceExamples, nor where
  // columns share a feature or must be filled in their own order.
  static bool can_read(const Schema& schema);

  explicit FastPath(const Schema& schema);

  // Decodes `record`, which has readable slack on both sides, into row `row` of
  // `batch`. False if it cannot be proven: the row then holds anything, and must be
  // rewound.
  bool decode(Bytes record, std::size_t row, FeatureDecoder* decoder,
              BatchBuilder* batch);

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  static constexpr std::size_t kWords = 8;
  static constexpr std::size_t kFewWords = 4;
  static constexpr std::size_t kMostKeyBytes = 8 * kWords - 10;  // of a known header

  // The bytes of an entry before its payload, eight at a time.
  struct Word {
    std::uint64_t header = 0;  // of an entry whose payload is empty
    std::uint64_t lengths =
        0;                    // 0xff for each byte that the size of the payload adds to
    std::uint64_t known = 0;  // 0xff for each byte of the header
  };

  // One number or several; the form of the others is not known in advance.
  enum class Form : std::uint8_t { kInt64, kFloat32, kOther };

  struct Slot {
    std::array<Word, kWords> words;
    Form form = Form::kOther;
    std::uint8_t n_words = 0;
    std::uint8_t header_bytes = 0;
    std::uint8_t most_payload = 0;    // lengths are in one byte each
    std::uint64_t last_record = 0;    // that had the feature
    std::size_t next = 0;             // what followed it in the last record
    std::size_t n_others_before = 0;  // entries nobody asked for that came before it
    Bytes key;
  };

  const std::uint8_t* match(const Slot& slot, const std::uint8_t* p) const noexcept;
  const std::uint8_t* decode_number(const Slot& slot, std::size_t column,
                                    const std::uint8_t* p, const std::uint8_t* end,
                                    std::size_t row,
                                    BatchBuilder* batch) const noexcept;
  std::size_t find(Bytes key) const noexcept;
  std::size_t bucket_of(Bytes key) const noexcept;
  std::size_t likely_column(const std::uint8_t* p) const noexcept;
  void learn(std::size_t n_entries, std::size_t n_misses) noexcept;

  std::vector<Slot> slots_;           // by column
  std::vector<std::size_t> buckets_;  // columns by the hash of their key, or kNone
  int bucket_shift_ = 0;
  std::uint64_t n_records_ = 0;
  std::size_t first_ = 0;          // what the last record began with
  std::size_t n_disorderly_ = 0;   // records in a row that were in another order
  std::size_t n_unpredicted_ = 0;  // records to come that are not predicted
};

}  // namespace fastrec
