#include "batch/schema.h"

namespace fastrec {
namespace {

// The dtype to write in a spec for values of a kind.
std::string quoted_dtype(FeatureKind kind) {
  const char* name = kind == FeatureKind::kFloat ? "float32" : kind_name(kind);
  return std::string("\"") + name + "\"";
}

}  // namespace

const char* kind_name(FeatureKind kind) noexcept {
  switch (kind) {
    case FeatureKind::kBytes:
      return "bytes";
    case FeatureKind::kFloat:
      return "float";
    case FeatureKind::kInt64:
      return "int64";
    case FeatureKind::kNone:
      break;
  }
  return "no";
}

std::string spec_says(const Schema& schema, const ColumnSpec& spec) {
  const std::string from = schema.source.empty() ? "" : ", " + schema.source + ",";
  return "its spec" + from + " says " + spec.text;
}

std::string any_number(const ColumnSpec& spec) {
  return "fr.VarLen(" + quoted_dtype(spec.kind) + ")";
}

std::string reads_kind(FeatureKind found) {
  return quoted_dtype(found) + " reads those, and no dtype reads both";
}

}  // namespace fastrec
