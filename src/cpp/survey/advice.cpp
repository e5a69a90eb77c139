#include "survey/advice.h"

#include <unordered_set>

#include "decode/describe.h"
#include "survey/foreign.h"
#include "survey/format.h"
#include "survey/guess.h"
#include "wire/walk.h"

namespace fastrec {
namespace {

// A shape as Python writes it.
std::string tuple_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

// The dtype of `item_bytes` that `string` most likely holds, or "".
std::string likely_dtype(Bytes string, std::size_t item_bytes) {
  if (item_bytes == 1) return "uint8";
  const std::string integer = "int" + std::to_string(8 * item_bytes);
  const std::string floating = "float" + std::to_string(8 * item_bytes);
  if (item_bytes != 2 && item_bytes != 4 && item_bytes != 8) return "";
  ArrayGuess guess;
  guess.add(string);
  std::string likely = item_bytes == 2 ? integer : "";
  for (std::size_t i = 0; i < guess.dtypes.size(); ++i) {
    const std::string name = name_of(ArrayGuess::kDtypes[i]);
    const bool fits = name == integer || name == floating;
    if (fits && guess.dtypes[i].is_possible()) likely = name;
  }
  return likely;
}

// The only byte string of feature `key`; empty if it does not have exactly one.
Bytes lone_string(const std::string& key, Bytes record) {
  JoinedMessages joined;
  Bytes feature, found;
  (void)walk_features(record, &joined, [&](Bytes name, Bytes value) {
    if (as_text(name) == key) feature = value;
  });
  ValueList list;
  std::size_t n;
  if (find_list(feature, &joined, &list) || list.kind != FeatureKind::kBytes ||
      count_values(list, &n) || n != 1) {
    return {};
  }
  for_each_string(list.message, [&](Bytes string) { found = string; });
  // A string in a joined message does not outlive `joined`.
  const std::uint8_t* const end = record.data() + record.size();
  const bool is_inside = found.data() >= record.data() && found.data() <= end;
  return is_inside ? found : Bytes();
}

// Suggests a spec that reads the byte string of a feature, as the end of a sentence. ""
// if `fault` is about something else, or no spec fits.
std::string suggest_spec(const ColumnSpec& spec, const Fault& fault, Bytes record) {
  const bool is_of_bytes =
      fault.code == Errc::kFeatureKind && spec.layout == Layout::kDense &&
      fault.found == static_cast<std::uint64_t>(FeatureKind::kBytes);
  const bool is_of_size = fault.code == Errc::kValueSize && spec.layout == Layout::kRaw;
  if ((!is_of_bytes && !is_of_size) || spec.section == Section::kLists) return "";
  const Bytes string = lone_string(spec.key, record);
  if (string.empty() || spec.n_values == 0) return "";
  TensorGuess tensor;
  tensor.add(string);
  if (tensor.is_possible)
    return "fr.SerializedTensor() reads it: it is a serialized tensor";
  const ByteFormat format = format_of(string);
  if (format != ByteFormat::kOther && format != ByteFormat::kText) {
    return std::string("fr.FixedLen((), \"bytes\") reads it: it is a ") +
           name_of(format) + " file";
  }
  std::string dtype;
  std::vector<std::int64_t> shape = spec.tensor_shape;
  const std::size_t n_bytes = string.size() / spec.n_values;
  if (string.size() == spec.row_bytes()) {
    if (spec.dtype != DType::kBytes) dtype = name_of(spec.dtype);
  } else if (string.size() % spec.n_values == 0) {
    dtype = likely_dtype(string, n_bytes);
    if (dtype.empty()) {
      dtype = "uint8";
      shape.push_back(static_cast<std::int64_t>(n_bytes));
    }
  }
  if (dtype.empty()) {
    dtype = "uint8";
    shape = {static_cast<std::int64_t>(string.size())};
  }
  return "fr.Raw(" + tuple_text(shape) + ", \"" + dtype + "\") reads its " +
         std::to_string(string.size()) + " bytes";
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
  const std::string fitting = suggest_spec(spec, fault, record);
  if (!fitting.empty()) error.reason += "; " + fitting;
  return error;
}

}  // namespace fastrec
