// Sequence: a feature list of a tf.train.SequenceExample -> one row of a column.
//
// Each feature of the list is a step of the row. In a padded column, a step is exactly
// one item. In a ragged column, it has any number of items, and the next column holds
// the numbers.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "wire/walk.h"

namespace fastrec {

// Whether a field 2 of `record` is certainly the feature lists of a SequenceExample: it
// has only fields of FeatureLists, down to the values, and some step has a kind.
// Anything else may be an unknown field of an Example.
bool has_feature_lists(Bytes record);

// The leading steps of a list that a column has already.
struct StepsRead {
  std::size_t n_steps = 0;
  std::size_t n_items = 0;
  std::size_t n_bytes = 0;  // of the list
};

// Decodes the FeatureList `list`, from the first step after those `read`, as the next
// row of `column`; if it is ragged, also its step sizes as the next row of the next
// column. The offset of a fault is in `list`.
Fault decode_steps(const Schema& schema, std::size_t column, Bytes list, StepsRead read,
                   JoinedMessages* joined, BatchBuilder* batch);

}  // namespace fastrec
