// Schema: which features of a record become which columns of a batch.
//
// A column is dense (the same number of values in every row), ragged (any number) or
// raw (one byte string that is the memory of an array). Plain data: what is legal was
// decided where the schema was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fastrec {

// The kinds of lists a feature can hold, numbered as the fields of
// tensorflow.Feature are. Source: tensorflow/core/example/feature.proto.
enum class FeatureKind : std::uint8_t { kNone = 0, kBytes = 1, kFloat = 2, kInt64 = 3 };

// "int64", "float" or "bytes".
const char* kind_name(FeatureKind kind) noexcept;

enum class Layout : std::uint8_t { kDense, kRagged, kRaw };

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
  kFloat32,
  kFloat64,
  kOpaque,  // raw columns: bytes that are moved and not interpreted
};

struct ColumnSpec {
  std::string key;  // of the feature
  FeatureKind kind = FeatureKind::kNone;
  Layout layout = Layout::kDense;
  DType dtype = DType::kInt64;
  // Bytes of one value in the column; 0 for byte strings.
  std::size_t item_bytes = 0;
  // Values in a row where the layout is dense or raw; in one item where it is ragged.
  std::size_t n_values = 1;
  // Raw: reverse every group of this many bytes; 0 or 1 leaves them as they are.
  std::size_t swap_bytes = 0;
  // Stands in where the feature is missing: n_values values as they lie in the column,
  // or as strings where the dtype is kBytes.
  std::optional<std::vector<std::uint8_t>> default_values;
  std::optional<std::vector<std::string>> default_strings;
  std::string text;  // the spec as the user would write it, for messages

  std::size_t row_bytes() const noexcept { return n_values * item_bytes; }
};

struct Schema {
  std::vector<ColumnSpec> columns;
};

}  // namespace fastrec
