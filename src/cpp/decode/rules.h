// Rules: what must be true of several columns in one row, for tf.io's composed
// features.
//
//   partitions   the numbers of one feature divide the items of another into rows; in
//                feature lists, step by step
//   indices      of a sparse feature: one for each value, within its size
//
// They are checked record by record, so that a record that breaks one is an error of
// that record, and what is composed of whole columns afterwards cannot fail.
#pragma once

#include <cstddef>
#include <vector>

#include "base/error.h"
#include "batch/column.h"
#include "batch/schema.h"

namespace fastrec {

// Rows that row ids of one record may speak of: memory is asked for by their number.
inline constexpr std::uint64_t kMostPartitionRows = std::uint64_t{1} << 24;

// Where the next step of each partition begins: memory that is reused for all records.
using StepPlaces = std::vector<std::size_t>;

// Checks the row that was added to `batch` last. A fault names its column.
Fault check_rules(const Schema& schema, const BatchBuilder& batch, StepPlaces* places);

}  // namespace fastrec
