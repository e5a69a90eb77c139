// Plan: the expected entries of a record in file order. The header of each entry is
// known except for the size of its payload.
//
// Nearly all writers repeat the order of their features, so a record is read by running
// down the plan of an earlier one. The header of an entry with a short payload is
//
//   0a E  0a n key  12 V  kind L  0a P  payload     E = n + 8 + P, V = 4 + P, L = 2 + P
//
// that of a list of any number of values
//
//   0a E  0a n key  12 V  kind L  list              E = n + 6 + L, V = 2 + L
//
// and that of an entry that no column reads
//
//   0a E  0a n key  12 V  feature                   E = n + 4 + V
//
// so one comparison of 32 bytes (64 for long keys), given the last byte of the header,
// proves the tag, the key and all lengths. There is one kernel per instruction set; all
// of them stop at the same entry.
//
// A record without a plan is read by key: the hash of a key suggests a column, and the
// same comparison proves it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/cpu.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "decode/feature_decoder.h"
#include "wire/key_table.h"

namespace fastrec {

// How the payload of an entry is decoded.
enum class EntryForm : std::uint8_t {
  kUnknown,    // the header is not known in advance: the kernel stops
  kInt64,      // one varint, stored as int64
  kFloat32,    // 4 bytes, copied
  kSkipped,    // no column reads it
  kConverted,  // one number, stored as another dtype
  kBlock,      // payload_bytes bytes, copied
  kString,     // one byte string of a dense column
  kList,       // a row of a ragged or padded column
};

struct alignas(32) PlanEntry {
  static constexpr std::size_t kPartBytes = 32;

  // Half of a header, and 0xff where the size of the payload is added to it.
  struct Part {
    std::array<std::uint8_t, kPartBytes> header{};
    std::array<std::uint8_t, kPartBytes> lengths{};
  };

  Part first;
  EntryForm form = EntryForm::kUnknown;
  std::uint8_t header_bytes = 0;
  std::uint8_t payload_bytes_max = 0;  // where the size is added
  std::uint32_t column = KeyTable::kNone;
  std::size_t payload_bytes = 0;     // of kFloat32 and kBlock
  const ColumnSpec* spec = nullptr;  // of the column
  Part second;                       // of a header of more than kPartBytes

  std::uint8_t& header(std::size_t i) noexcept {
    return (i < kPartBytes ? first : second).header[i % kPartBytes];
  }
  std::uint8_t& length(std::size_t i) noexcept {
    return (i < kPartBytes ? first : second).lengths[i % kPartBytes];
  }
};

// Returns the entry of a column. Its form is kUnknown if the header depends on more
// than the size of the payload.
PlanEntry entry_of(const ColumnSpec& spec, std::uint32_t column);

// Returns the entry of a key that no column reads.
PlanEntry skipped_entry(Bytes key);

// The position in a record, and the row that it is decoded into.
struct PlanRun {
  const std::uint8_t* p;
  const std::uint8_t* end;
  std::size_t row;
  BatchBuilder* batch;
};

// Decodes the entries at `run->p` while they match the `n` entries of a plan, in order.
// Returns the number of decoded entries; `run->p` is then at the next one. The record
// must have BytesWithSlack::kSlackBytes readable bytes on both sides.
using RunPlan = std::size_t(const PlanEntry* entries, std::size_t n, PlanRun* run);

// Decodes two records whose entries are exactly the `n` entries of a plan, into row
// `first.row` and the next one, which is `second.row`. Returns false if they cannot be
// proven; then rewind both rows. The records need slack as for RunPlan.
using RunBoth = bool(const PlanEntry* entries, std::size_t n, const PlanRun& first,
                     const PlanRun& second);

// The columns of a schema by key, and those that a record has had so far.
struct ColumnLookup {
  // Whether a schema has such columns: features of Examples, each read by one column, in
  // any order.
  static bool can_hold(const Schema& schema);

  // can_hold() must be true for `schema`, which must outlive this.
  explicit ColumnLookup(const Schema& schema);

  void begin_record() noexcept {
    ++record;
    n_marked = 0;
  }
  bool has(std::uint32_t column) const noexcept { return marks[column] == record; }
  // False if the record had the column before.
  bool mark(std::uint32_t column) noexcept {
    ++n_marked;
    return std::exchange(marks[column], record) != record;
  }
  // Fills the columns that the record lacks. False if one of them has no default.
  bool fill_missing(std::size_t row, const FeatureDecoder& decoder,
                    BatchBuilder* batch) const;

  KeyTable keys;                   // numbered by column
  std::vector<PlanEntry> columns;  // by column
  // By column: the last record that had it. Records are counted from 1.
  std::vector<std::uint64_t> marks;
  std::uint64_t record = 0;
  std::size_t n_marked = 0;              // columns of this record so far
  std::uint32_t last = KeyTable::kNone;  // the column of the last entry
};

// Decodes at most `n_max` entries at `run->p`, in any order, and marks their columns.
// Stops at an entry that it cannot prove, and at the second entry of a column. Returns
// the number of decoded entries; `run->p` is then at the next one.
using RunByKey = std::size_t(std::size_t n_max, ColumnLookup* lookup, PlanRun* run);

struct PlanKernel {
  const char* name;
  Isa isa;
  RunPlan* run;
  RunBoth* run_both;
  RunByKey* run_by_key;
};

// The kernels that this CPU can run, best first; the last one is portable.
std::span<const PlanKernel> plan_kernels() noexcept;

// The best one that active_isa() allows.
const PlanKernel& plan_kernel();

namespace kernels {

// One source file each.
extern const PlanKernel kPlanAvx2;  // x86-64 only
extern const PlanKernel kPlanPortable;

// Stores the payload of an entry of form kConverted, kString or kList. Returns false if
// the payload does not fit the column.
bool store_payload(const PlanEntry& entry, Bytes payload, const PlanRun& run);

// Stores the list at `p`, which may be long. Returns the end of its entry, or nullptr if
// it is not a plain list for the column of `entry`.
const std::uint8_t* store_list(const PlanEntry& entry, const std::uint8_t* p,
                               const PlanRun& run);

}  // namespace kernels
}  // namespace fastrec
