// Fastpath: a record of the form that all writers write -> one row of a batch.
//
// That form is one message of features, in plain entries (wire/plain.h), no key twice.
// A record of it is read in one pass: each entry goes straight to its column. Which
// entry comes next is predicted, because nearly all writers repeat the order of their
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
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "decode/feature_decoder.h"

namespace fastrec {

class FastPath {
 public:
  // Whether records are read this way at all: not those of SequenceExamples, nor where
  // columns share a feature or must be filled in their own order.
  static bool can_read(const Schema& schema);

  explicit FastPath(const Schema& schema);

  // Whether keys are found fast: not if very many end alike.
  bool is_usable() const noexcept { return is_usable_; }

  // Decodes `record` into row `row` of `batch`. False if it cannot be proven, or if
  // those before it could not: the row then holds anything, and must be rewound.
  bool decode(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
              BatchBuilder* batch);

 private:
  static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);
  static constexpr std::size_t kTemplateBytes = 32;

  // What the header of an entry is.
  struct Template {
    std::array<std::uint8_t, kTemplateBytes> header{};  // where the payload is empty
    std::array<std::uint8_t, kTemplateBytes> known{};   // 0xff where there is a header
    // 0xff where the size of the payload is added.
    std::array<std::uint8_t, kTemplateBytes> lengths{};
  };

  // One number, as it is or in another dtype, or anything else.
  enum class Form : std::uint8_t { kOther, kInt64, kFloat32, kConverted };

  // A feature that is asked for.
  struct alignas(64) Slot {
    Template entry;
    std::uint64_t last_record = 0;  // that had the feature
    std::uint32_t next = 0;         // what followed it in the last record
    // Entries that nobody asked for, which came before it.
    std::uint32_t n_others_before = 0;
    Form form = Form::kOther;  // kOther: the header is not known in advance
    FeatureKind kind = FeatureKind::kNone;
    DType dtype = DType::kInt64;
    std::uint8_t header_bytes = 0;
    bool is_long = false;  // the header goes on in more_
  };

  // What has been read of a record.
  struct Progress {
    const std::uint8_t* p;
    const std::uint8_t* end;
    std::size_t row;
    std::uint32_t* guess;         // what comes next
    std::uint32_t tried = kNone;  // a column that the next entry is no number of
    std::uint32_t n_found = 0;    // features that are asked for
    std::uint32_t n_others = 0;   // entries that are not, since the last that is
    std::uint32_t n_others_in_all = 0;
    std::uint32_t n_misses = 0;  // of the guess
  };

  bool read(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
            BatchBuilder* batch);
  const std::uint8_t* find_payload(std::uint32_t column,
                                   const std::uint8_t* p) const noexcept;
  const std::uint8_t* decode_number(std::uint32_t column, const Progress& progress,
                                    BatchBuilder* batch) const noexcept;
  void decode_predicted(BatchBuilder* batch, Progress* progress) noexcept;
  bool skip_other(Progress* progress) noexcept;
  bool decode_entry(FeatureDecoder* decoder, BatchBuilder* batch, Progress* progress);
  bool note(std::uint32_t column, Progress* progress) noexcept;
  bool note_unpredicted(std::uint32_t column, Progress* progress) noexcept;
  void learn(const Progress& progress) noexcept;
  std::uint32_t likely_column(const std::uint8_t* entry) const noexcept;
  std::uint32_t find(Bytes key) const noexcept;
  bool fill_buckets(std::uint64_t multiplier);
  std::size_t bucket_of(Bytes key) const noexcept;

  std::vector<Slot> slots_;     // by column
  std::vector<Template> more_;  // by column
  std::vector<std::string> keys_;
  std::vector<std::uint32_t> buckets_;  // columns by the hash of their key, or kNone
  int bucket_shift_ = 0;
  bool is_usable_ = true;
  std::uint64_t multiplier_ = 0;
  std::uint64_t n_records_ = 0;
  std::uint32_t first_ = 0;        // what the last record began with
  std::size_t n_disorderly_ = 0;   // records in a row that were in another order
  std::size_t n_unpredicted_ = 0;  // records to come that are not predicted
  std::size_t n_failures_ = 0;     // records in a row that could not be proven
  std::size_t n_declined_ = 0;     // records to come that are not tried
};

}  // namespace fastrec
