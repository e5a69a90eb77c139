// FastPath: a record in the form that all known writers produce -> one row of a batch.
//
// That form is one message of features, in plain entries (wire/plain.h), no key twice.
// A record of it is read in one pass: each entry goes straight to its column. The
// entries are expected in the order of an earlier record that began with the same two
// keys (its plan, plan.h). Files of several writers have several orders, so several
// plans are kept. An entry that the plan did not expect is looked up by its key; the
// plan resumes behind it. Where a plan lacks the entry or has another order, the rest
// of the record is looked up.
//
// The fast path never guesses: ExampleDecoder decodes the records that this one cannot
// prove, and reports all faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "decode/back_off.h"
#include "decode/feature_decoder.h"
#include "decode/plan.h"

namespace fastrec {

class FastPath {
 public:
  // ColumnLookup::can_hold() must be true for `schema`, which must outlive this.
  explicit FastPath(const Schema& schema);
  FastPath(const FastPath&) = delete;
  FastPath& operator=(const FastPath&) = delete;

  // Decodes `record` into row `row` of `batch`. Returns false if the record cannot be
  // proven, or is not tried because earlier ones could not; then rewind the row.
  bool decode(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
              BatchBuilder* batch);

  // Decodes two records into row `row` and the next one, if they have exactly the
  // entries of the last plan. Otherwise returns false and rewinds both rows.
  bool decode_pair(BytesWithSlack first, BytesWithSlack second, std::size_t row,
                   BatchBuilder* batch);

 private:
  // The entries of records that begin with the same keys.
  struct Plan {
    std::uint64_t signature = 0;
    std::vector<PlanEntry> entries;
    std::vector<std::string> keys;        // by entry
    std::vector<std::uint32_t> position;  // by column: of its entry, or KeyTable::kNone
    std::vector<std::uint32_t> absent;    // columns that lack an entry
    bool is_for_pairs = false;            // has all columns, in forms of the kernel
    // Records that deviated since the plan was learned. At n_surprises_max, which then
    // doubles, it is learned again.
    std::uint32_t n_surprises = 0;
    std::uint32_t n_surprises_max = 0;
  };

  // The state of reading one record.
  struct Progress {
    PlanRun run;
    const Plan* plan;         // no_plan_ if the other entries are looked up
    std::size_t next = 0;     // entry of the plan
    bool is_in_order = true;  // the entries so far are those of the plan up to `next`
  };

  bool read(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
            BatchBuilder* batch);
  bool run_plan(Progress* progress);
  bool decode_entry(Bytes features, FeatureDecoder* decoder, Progress* progress);
  void select_plan(Bytes features, Progress* progress);
  void resume_after(std::uint32_t column, Progress* progress);
  void leave_order(Progress* progress);
  bool mark_entries(const Plan& plan, std::size_t begin, std::size_t end);
  bool fill_missing(const Progress& progress, const FeatureDecoder& decoder);
  void learn(Bytes features, std::uint64_t signature, Plan* plan) const;
  Plan& plan_of(std::uint64_t signature);

  const PlanKernel& kernel_ = plan_kernel();
  std::vector<Plan> plans_;  // by signature, modulo their number
  Plan no_plan_;
  const Plan* last_plan_ = &no_plan_;  // the plan of the record before
  ColumnLookup lookup_;  // of the last record that left the order of its plan
  BackOff record_back_off_, pair_back_off_;
};

}  // namespace fastrec
