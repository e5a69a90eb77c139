#include "decode/describe.h"

namespace fastrec {
namespace {

// The expected number of values, with the spec, and a hint.
std::string expected_count(const ColumnSpec& spec, const Fault& fault,
                           const std::string& in_spec) {
  const bool is_step = spec.section == Section::kLists;
  const std::string expected = std::to_string(fault.expected);
  if (is_step ? spec.layout == Layout::kPadded : !spec.has_row_splits()) {
    const bool is_image = spec.text.starts_with("Image(");
    const std::string any =
        is_image ? "fr.List(fr." + spec.text + ")" : varlen_spec(spec);
    return expected + in_spec + "; " + any + " accepts any number";
  }
  if (is_step || (spec.n_values != 0 && fault.found % spec.n_values != 0)) {
    return "a multiple of " + expected + in_spec;
  }
  return "at most " + expected + in_spec + "; truncate=True drops the rest";
}

}  // namespace

std::string describe(const Fault& fault, const Schema& schema) {
  if (fault.column < 0) return describe(fault);
  const ColumnSpec& spec = schema.columns[static_cast<std::size_t>(fault.column)];
  const bool is_list = spec.section == Section::kLists;
  const std::string feature =
      (is_list ? "feature list '" : "feature '") + spec.key + "' ";
  const std::string holds = feature + (is_list ? "has a step of " : "holds ");
  const std::string expected_spec = describe_spec(schema, spec);
  const std::string in_spec = " (" + expected_spec + ")";
  const std::string found = std::to_string(fault.found);
  if (fault.code == Errc::kFeatureKind) {
    const auto kind = static_cast<FeatureKind>(fault.found);
    return holds + kind_name(kind) + " values" + in_spec + "; " + matching_dtype(kind);
  }
  if (fault.code == Errc::kValueCount) {
    return holds + found + (fault.found == 1 ? " value" : " values") + ", expected " +
           expected_count(spec, fault, in_spec);
  }
  if (fault.code == Errc::kStepCount) {
    const std::string expected = std::to_string(fault.expected) + in_spec;
    const bool is_partition = spec.layout == Layout::kRagged;
    return feature + "has " + found + " steps, " +
           (is_partition
                ? "but the list that it partitions has " + expected
                : "expected at most " + expected + "; truncate=True drops the rest");
  }
  return error_class(fault.code) == ErrorClass::kSchema
             ? feature + describe(fault, expected_spec)
             : feature + "cannot be read: " + describe(fault);
}

}  // namespace fastrec
