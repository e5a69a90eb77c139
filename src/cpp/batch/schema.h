// Schema: which features of a record become which columns of a batch.
//
// A column is dense (the same number of values in every row), ragged (any number),
// padded (any number, padded to one length) or raw (one byte string that is the memory
// of an array). Plain data: Python validates a schema before it builds one.
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
  kTensor,  // a serialized tensor
  kRecord,  // the serialized record itself: a byte string
};

template <>
struct Names<Layout> {
  static constexpr const char* kAll[] = {"dense", "ragged", "padded",
                                         "raw",   "tensor", "record"};
};

// The part of a record that holds the values of a column.
enum class Section : std::uint8_t {
  kFeatures,   // the features of an Example
  kContext,    // the context of a SequenceExample
  kLists,      // its feature lists; each step is an item of the row
  kStepSizes,  // computed: the number of items in each step of the preceding kLists
               // column; ragged int64
};

template <>
struct Names<Section> {
  static constexpr const char* kAll[] = {"features", "context", "lists", "step_sizes"};
};

// The type of a value in the column.
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
  kOpaque,  // raw columns: bytes that are copied and not interpreted
};

template <>
struct Names<DType> {
  static constexpr const char* kAll[] = {"bytes",   "bool",    "int8",    "int16",
                                         "int32",   "int64",   "uint8",   "uint16",
                                         "uint32",  "uint64",  "float16", "bfloat16",
                                         "float32", "float64", ""};
};

// The items of a list that the rows of a record need, if rows are steps of records: row k
// needs the items from step + low to step + high, where step = first + k * every. Numbers
// outside the list are clipped to its first and last item.
struct Reach {
  std::int64_t first = 0, every = 1;
  std::int64_t low = 0, high = 0;
};

struct ColumnSpec {
  std::string key;  // of the feature
  Section section = Section::kFeatures;
  FeatureKind kind = FeatureKind::kNone;
  Layout layout = Layout::kDense;
  DType dtype = DType::kInt64;
  // Bytes of one value in the column; 0 for byte strings.
  std::size_t item_bytes = 0;
  // Values in a dense or raw row, or in one item of a ragged or padded row.
  std::size_t n_values = 1;
  // Raw: reverse every group of this many bytes; 0 and 1 change nothing.
  std::size_t swap_bytes = 0;
  // The default of a missing feature: the memory of n_values values, or strings if the
  // dtype is kBytes. Padded: the one padding value.
  std::optional<std::vector<std::uint8_t>> default_values;
  std::optional<std::vector<std::string>> default_strings;
  // Padded: items in every row. Without it, the longest row of the batch, rounded up to
  // a multiple of `multiple_of`.
  std::optional<std::size_t> length;
  std::size_t multiple_of = 1;
  bool truncate = false;     // cut rows longer than `length`; otherwise they are faults
  bool is_required = false;  // kLists: a missing list is a fault
  // Stacked: `n_slots` consecutive dense columns of equal type share one array, and
  // this column is at index `slot` of the stacked axis.
  std::size_t slot = 0;
  std::size_t n_slots = 1;
  // Tensor: its dtype, numbered as in types.proto, and shape. Dtype 0 accepts any
  // tensor; the column then holds byte strings: int32 dtype, int32 rank, int64
  // dimensions, values. String values follow their int64 offsets.
  std::uint32_t tensor_dtype = 0;
  std::vector<std::int64_t> tensor_shape;
  std::string text;            // the spec as Python code, for messages
  std::optional<Reach> reach;  // ragged or padded: delivers only these items

  std::size_t row_bytes() const noexcept { return n_values * item_bytes; }
  // The number of items in `n` values. Skips the division for items of one value.
  std::size_t n_items(std::size_t n) const noexcept {
    return n_values == 1 ? n : n / n_values;
  }
  bool holds_strings() const noexcept { return dtype == DType::kBytes; }
  // Stacked strings are appended in the order of their slots, so no other order works.
  bool is_stacked_string() const noexcept { return n_slots > 1 && holds_strings(); }
  bool has_row_splits() const noexcept {
    return layout == Layout::kRagged || layout == Layout::kPadded;
  }
};

// How one feature partitions the items of another, as in tf.io.RaggedFeature.
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
  std::size_t column = 0;  // ragged int64; the values column if uniform
  std::uint64_t uniform_length = 1;
};

// A constraint across several columns that every row must satisfy.
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
  // Where the specs come from, for messages: "inferred from 100 of 900 records", or ""
  // if the user wrote them.
  std::string source;
};

// Parts of the message for a record that does not match its spec: the spec, the spec
// that accepts any number of values, and the dtype that reads the kind that was found.
std::string describe_spec(const Schema& schema, const ColumnSpec& spec);
std::string varlen_spec(const ColumnSpec& spec);
std::string matching_dtype(FeatureKind found);

}  // namespace fastrec
