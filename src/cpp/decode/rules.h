// Rules: the constraints across several columns of a row in tf.io's composed features.
//
//   partitions   one feature partitions the items of another into rows; in feature
//                lists, step by step
//   indices      a sparse feature has one index per value, within its size
//
// Each record is checked, so that an error names its record, and composing whole
// columns afterwards cannot fail.
#pragma once

#include <cstddef>
#include <vector>

#include "base/error.h"
#include "batch/column.h"
#include "batch/schema.h"

namespace fastrec {

// The limit of rows that the row ids of one record may create, since memory is
// allocated in proportion to the largest id.
inline constexpr std::uint64_t kMaxPartitionRows = std::uint64_t{1} << 24;

// The beginning of the next step of each partition: scratch memory.
using StepBegins = std::vector<std::size_t>;

// Returns `fault` as one of `column`.
inline Fault of_column(Fault fault, std::size_t column) noexcept {
  fault.column = static_cast<std::int32_t>(column);
  return fault;
}

// Checks the last row of `batch`. A fault has its column.
Fault check_rules(const Schema& schema, const BatchBuilder& batch, StepBegins* begins);

}  // namespace fastrec
