// Schema: which features of a record become which columns of a batch.
//
// A column is dense (the same number of values in every row), ragged (any number),
// padded (any number, filled up to one length) or raw (one byte string that is the
// memory of an array). Plain data: what is legal was decided where the schema was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/names.h"
#include "wire/kind.h"

namespace fastrec {

enum class Layout : std::uint8_t {
  kDense,
  kRagged,
  kPadded,
  kRaw,
  kTensor,  // a serialized tensor; of any shape and dtype, a byte string of its own
            // form
  kRecord,  // the serialized record itself, whatever it is: a byte string
};

template <>
struct Names<Layout> {
  static constexpr const char* kAll[] = {"dense", "ragged", "padded",
                                         "raw",   "tensor", "record"};
};

// Where in a record the values of a column are.
enum class Section : std::uint8_t {
  kFeatures,   // the features of an Example
  kContext,    // those of a SequenceExample
  kLists,      // its lists of features, whose steps are the items of a row
  kStepSizes,  // nowhere: how many items each step has in the column before, which is
               // one of lists; ragged int64
};

template <>
struct Names<Section> {
  static constexpr const char* kAll[] = {"features", "context", "lists", "step_sizes"};
};

// What a value is in the column.
enum class DType : std::uint8_t {
  kBytes,  // a byte string of any length
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kOpaque,  // raw columns: bytes that are moved and not interpreted
};

template <>
struct Names<DType> {
  static constexpr const char* kAll[] = {"bytes",   "bool",    "int8",    "int16",
                                         "int32",   "int64",   "uint8",   "uint16",
                                         "uint32",  "uint64",  "float16", "bfloat16",
                                         "float32", "float64", ""};
};

struct ColumnSpec {
  std::string key;  // of the feature
  Section section = Section::kFeatures;
  FeatureKind kind = FeatureKind::kNone;
  Layout layout = Layout::kDense;
  DType dtype = DType::kInt64;
  // Bytes of one value in the column; 0 for byte strings.
  std::size_t item_bytes = 0;
  // Values in a row where the layout is dense or raw; in one item where rows have any
  // number of them, ragged or padded.
  std::size_t n_values = 1;
  // Raw: reverse every group of this many bytes; 0 or 1 leaves them as they are.
  std::size_t swap_bytes = 0;
  // Stands in where the feature is missing: n_values values as they lie in the column,
  // or as strings where the dtype is kBytes. Padded: the one value to fill up with.
  std::optional<std::vector<std::uint8_t>> default_values;
  std::optional<std::vector<std::string>> default_strings;
  // Padded: the items of every row. Without it they are as many as the longest row of
  // the batch has, and then some to be a multiple of `multiple_of`.
  std::optional<std::size_t> length;
  std::size_t multiple_of = 1;
  bool truncate =
      false;  // cut rows that are longer than `length`, which is a fault else
  bool is_required = false;  // lists: a fault if they are missing
  // Stacked: this column and the n_slots - 1 after it, all dense and alike, lie side by
  // side in one array, this one at `slot`.
  std::size_t slot = 0;
  std::size_t n_slots = 1;
  // Tensor: what it must be. Without a dtype, numbered as in types.proto, a tensor may
  // be any, and its column has byte strings: int32 dtype, int32 dimensions, int64
  // sizes, and then the memory of its values, or the int64 offsets of its strings and
  // them.
  std::uint32_t tensor_dtype = 0;
  std::vector<std::int64_t> tensor_shape;
  std::string text;  // the spec as the user would write it, for messages

  std::size_t row_bytes() const noexcept { return n_values * item_bytes; }
  // How many items `n` values make. Those of one value are worth not dividing.
  std::size_t n_items(std::size_t n) const noexcept {
    return n_values == 1 ? n : n / n_values;
  }
  bool has_row_splits() const noexcept {
    return layout == Layout::kRagged || layout == Layout::kPadded;
  }
};

// How a feature divides the items of another into rows, as tf.io.RaggedFeature has it.
enum class PartitionKind : std::uint8_t {
  kRowSplits,
  kRowLengths,
  kRowStarts,
  kRowLimits,
  kValueRowIds,
  kUniformRowLength,
};

template <>
struct Names<PartitionKind> {
  static constexpr const char* kAll[] = {"row_splits",   "row_lengths",
                                         "row_starts",   "row_limits",
                                         "value_rowids", "uniform_row_length"};
};

struct Partition {
  PartitionKind kind = PartitionKind::kRowSplits;
  std::size_t column = 0;  // ragged int64; of the values, where it is uniform
  std::uint64_t uniform_length = 1;
};

// What must be true of several columns in every row, beyond what is true of each.
struct RowRule {
  std::size_t values = 0;  // a ragged column
  // Partitions of its items, outermost first.
  std::vector<Partition> partitions;
  // Ragged int64 columns with one index for each value, in [0, size).
  struct Indices {
    std::size_t column = 0;
    std::int64_t size = 0;
  };
  std::vector<Indices> indices;
};

struct Schema {
  std::vector<ColumnSpec> columns;
  std::vector<RowRule> rules;
  // Where the specs come from, for messages: "inferred from 100 of 900 records"; ""
  // where a user wrote them.
  std::string source;
};

// Parts of messages about a record that does not fit: what its spec says and where that
// comes from, the spec to write for any number of values, and what to write for values
// of the kind that was found.
std::string spec_says(const Schema& schema, const ColumnSpec& spec);
std::string any_number(const ColumnSpec& spec);
std::string reads_kind(FeatureKind found);

}  // namespace fastrec
