// Sequence: a list of features in a tf.train.SequenceExample -> one row of a column.
//
// Each feature of the list is a step of the row. In a padded column a step is one item,
// and must have exactly the values of one; in a ragged column it has any number of
// items, and the column after it says how many.
#pragma once

#include <cstddef>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/column.h"
#include "batch/schema.h"
#include "decode/feature_decoder.h"
#include "wire/walk.h"

namespace fastrec {

// Whether a field 2 of `record` proves to be the feature lists of a SequenceExample: it
// has fields of FeatureLists and no others down to the values, and a step has a kind.
// Anything else may be a field that Examples do not know.
bool has_feature_lists(Bytes record);

// Decodes the FeatureList `list` as the next row of `column`, and of the sizes of its
// steps where that is ragged. The offset of a fault counts from the beginning of
// `list`.
Fault decode_steps(const Schema& schema, std::size_t column, Bytes list, Way way,
                   JoinedMessages* joined, BatchBuilder* batch);

// What is wrong with a list that is read as `spec`, which is one of `schema`.
std::string describe_steps(const Schema& schema, const ColumnSpec& spec,
                           const Fault& fault);

}  // namespace fastrec
