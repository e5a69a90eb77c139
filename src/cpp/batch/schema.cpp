#include "batch/schema.h"

namespace fastrec {
namespace {

// The dtype to write in a spec for values of a kind.
std::string quoted_dtype(FeatureKind kind) {
  const char* name = kind == FeatureKind::kFloat ? "float32" : kind_name(kind);
  return std::string("\"") + name + "\"";
}

}  // namespace

std::string describe_spec(const Schema& schema, const ColumnSpec& spec) {
  const std::string from = schema.source.empty() ? "" : ", " + schema.source + ",";
  return "its spec" + from + " is " + spec.text;
}

std::string varlen_spec(const ColumnSpec& spec) {
  return "fr.VarLen(" + quoted_dtype(spec.kind) + ")";
}

std::string matching_dtype(FeatureKind found) {
  return quoted_dtype(found) + " reads them";
}

}  // namespace fastrec
