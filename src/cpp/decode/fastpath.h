// FastPath: a record of the form that all writers write -> one row of a batch.
//
// That form is one message of features, in plain entries (wire/plain.h), no key twice.
// A record of it is read in one pass: each entry goes straight to its column. The
// entries are expected in the order of an earlier record that began with the same two
// keys (its plan, plan.h). Files of several writers have several orders, so several
// plans are kept. Where a record deviates from its plan, its entries are looked up one
// by one, until one is found from which the plan goes on.
//
// The fast path guesses nothing: a record that it cannot prove is left to
// ExampleDecoder, which also makes all faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "decode/feature_decoder.h"
#include "decode/plan.h"
#include "wire/key_table.h"

namespace fastrec {

class FastPath {
 public:
  // Whether records are read this way at all: not those of SequenceExamples, nor where
  // columns share a feature or must be filled in their own order.
  static bool can_read(const Schema& schema);

  // `schema` must outlive this: plans refer to its columns.
  explicit FastPath(const Schema& schema);

  // Decodes `record` into row `row` of `batch`. False if it cannot be proven, or if
  // those before it could not: the row then holds anything, and must be rewound.
  bool decode(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
              BatchBuilder* batch);

 private:
  static constexpr std::uint32_t kNone = PlanEntry::kNoColumn;

  // The entries of records that begin with the same keys.
  struct Plan {
    std::uint64_t signature = 0;
    std::vector<PlanEntry> entries;
    std::vector<std::string> keys;        // by entry
    std::vector<std::uint32_t> position;  // by column: of its entry, or kNone
    std::vector<std::uint32_t> absent;    // columns without an entry
    // Records that deviated since the plan was learned, and how many of them it takes
    // to learn another one: twice as many each time.
    std::uint32_t n_surprises = 0;
    std::uint32_t n_surprises_max = 0;
  };

  // How far a record was read.
  struct Progress {
    PlanRun run;
    const Plan* plan;
    std::size_t next = 0;        // entry of the plan
    bool is_in_order = true;     // all entries up to `next` were met, and no others
    bool is_surprising = false;  // the plan lacks an entry, or has another order
  };

  bool read(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
            BatchBuilder* batch);
  bool decode_entry(FeatureDecoder* decoder, Progress* progress,
                    std::uint32_t* column) const;
  bool place(std::uint32_t column, Progress* progress);
  void leave_order(Progress* progress);
  bool mark(std::uint32_t column);
  bool mark_entries(const Plan& plan, std::size_t begin, std::size_t end);
  bool fill_missing(const Progress& progress, FeatureDecoder* decoder);
  void learn(Bytes features, std::uint64_t signature, Plan* plan) const;

  RunPlan* const run_plan_;
  KeyTable keys_;                   // by column
  std::vector<PlanEntry> columns_;  // an entry for each column
  std::vector<Plan> plans_;         // by signature, modulo their number
  const Plan no_plan_;
  // The columns that a record out of order had: those with the number of that record.
  std::vector<std::uint64_t> marks_;
  std::uint64_t n_marked_records_ = 0;
  std::size_t n_marked_ = 0;
  std::size_t n_failures_ = 0;  // records in a row that could not be proven
  std::size_t n_declined_ = 0;  // records to come that are not tried
};

}  // namespace fastrec
