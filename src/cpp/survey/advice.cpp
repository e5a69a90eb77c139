#include "survey/advice.h"

#include <unordered_set>

#include "decode/describe.h"
#include "survey/foreign.h"
#include "wire/walk.h"

namespace fastrec {
namespace {

// Larger records are not copied for a hint.
constexpr std::size_t kMisreadBytes = std::size_t{16} << 20;

// Whether `fault` is about a byte string that another spec may read.
bool is_misread(const ColumnSpec& spec, const Fault& fault) {
  if (spec.section == Section::kLists) return false;
  if (fault.code == Errc::kValueSize) return spec.layout == Layout::kRaw;
  return fault.code == Errc::kFeatureKind && spec.layout == Layout::kDense &&
         fault.found == static_cast<std::uint64_t>(FeatureKind::kBytes);
}

}  // namespace

std::vector<std::string> names_in(Bytes record, Section section) {
  constexpr std::size_t kMaxNames = 1000;
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  JoinedMessages joined;
  const auto add = [&](Bytes key) {
    if (names.size() == kMaxNames) return;
    std::string name(as_text(key));
    if (seen.insert(name).second) names.push_back(std::move(name));
  };
  // Ignores faults: the names before a fault are useful, too.
  if (section != Section::kLists) {
    (void)walk_features(record, &joined, [&](Bytes key, Bytes) { add(key); });
  } else {
    (void)walk_maps<2>(record, &joined, [&](std::uint32_t field, Bytes key, Bytes) {
      if (field == 2) add(key);
    });
  }
  return names;
}

Error explain(const Schema& schema, const Fault& fault, Bytes record) {
  Error error(fault.code, describe(fault, schema), "");
  const bool may_be_foreign = fault.column < 0 || fault.code == Errc::kFeatureMissing;
  std::string foreign = may_be_foreign ? describe_foreign(record) : "";
  if (!foreign.empty()) {
    foreign = " is not a tf.train.Example but looks like " + foreign +
              "; fr.Record() reads its bytes";
  }
  if (fault.column < 0) {
    if (foreign.empty()) return error;
    const std::string before =
        fault.code == Errc::kNotExample ? "" : error.reason + "; ";
    error.reason = before + "the record" + foreign;
    return error;
  }
  const ColumnSpec& spec = schema.columns[static_cast<std::size_t>(fault.column)];
  error.feature = spec.key;
  if (fault.code == Errc::kFeatureMissing) {
    if (!foreign.empty()) {
      error.advice = "it" + foreign;
      return error;
    }
    error.names = names_in(record, spec.section);
    if (spec.section != Section::kLists) {
      error.advice =
          "pass default=, or use " + varlen_spec(spec) + " if records may lack it";
    }
    return error;
  }
  if (record.size() <= kMisreadBytes && is_misread(spec, fault)) {
    error.misread = {std::string(as_text(record)), spec.tensor_shape,
                     name_of(spec.dtype)};
  }
  return error;
}

}  // namespace fastrec
