#include "decode/feature_decoder.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "decode/values.h"
#include "wire/plain.h"

namespace fastrec {
namespace {

// The number of the `n` values in a list to keep in a ragged or padded column.
Fault count_kept(const ColumnSpec& spec, std::size_t n, std::size_t* n_kept) {
  if (spec.n_values == 0 || spec.n_items(n) * spec.n_values != n) {
    return {.code = Errc::kValueCount, .found = n, .expected = spec.n_values};
  }
  *n_kept = n;
  if (!spec.length || spec.n_items(n) <= *spec.length) return {};
  *n_kept = *spec.length * spec.n_values;
  if (spec.truncate) return {};
  return {.code = Errc::kValueCount, .found = n, .expected = *n_kept};
}

void copy_swapped(Bytes source, std::size_t group, std::uint8_t* target) {
  if (group <= 1) {
    if (!source.empty()) std::memcpy(target, source.data(), source.size());
    return;
  }
  for (std::size_t i = 0; i < source.size(); i += group) {
    std::reverse_copy(source.begin() + static_cast<std::ptrdiff_t>(i),
                      source.begin() + static_cast<std::ptrdiff_t>(i + group),
                      target + i);
  }
}

// Serializes a tensor of any dtype and shape to the format of ColumnSpec::tensor_dtype.
void serialize(const TensorReader& tensor, std::vector<std::uint8_t>* out) {
  out->clear();
  const auto append = [&]<typename Int>(Int value) {
    out->resize(out->size() + sizeof value);
    std::memcpy(out->data() + out->size() - sizeof value, &value, sizeof value);
  };
  append(static_cast<std::int32_t>(tensor.dtype()));
  append(static_cast<std::int32_t>(tensor.shape().size()));
  for (const std::int64_t size : tensor.shape()) append(size);
  if (tensor.dtype() == TensorReader::kString) {
    std::int64_t offset = 0;
    append(offset);
    for (const Bytes string : tensor.strings()) {
      append(offset += static_cast<std::int64_t>(string.size()));
    }
    for (const Bytes string : tensor.strings()) {
      out->insert(out->end(), string.begin(), string.end());
    }
  } else {
    out->insert(out->end(), tensor.memory().begin(), tensor.memory().end());
  }
}

Fault decode_raw(const ColumnSpec& spec, const ValueList& list, std::size_t n,
                 std::uint8_t* target) {
  if (n != 1) return {.code = Errc::kValueCount, .found = n, .expected = 1};
  Bytes string;
  for_each_string(list.message, [&](Bytes value) { string = value; });
  if (string.size() != spec.row_bytes()) {
    return {
        .code = Errc::kValueSize, .found = string.size(), .expected = spec.row_bytes()};
  }
  if (spec.dtype == DType::kBool) {
    // NumPy's bool must be 0 or 1; a byte of a file may be anything.
    std::transform(string.begin(), string.end(), target,
                   [](std::uint8_t byte) { return byte != 0 ? 1 : 0; });
  } else {
    copy_swapped(string, spec.swap_bytes, target);
  }
  return {};
}

}  // namespace

bool append_plain_row(const ColumnSpec& spec, std::size_t column, Bytes list,
                      BatchBuilder* batch) {
  std::size_t n, n_kept;
  if (!append_plain_list(spec, column, list, batch, &n)) return false;
  if (count_kept(spec, n, &n_kept)) {
    batch->retract(column, n);
    return false;
  }
  if (n_kept != n) batch->retract(column, n - n_kept);
  batch->end_ragged_row(column, spec.n_items(n_kept));
  return true;
}

// Decodes a feature of the plain form that matches the column. False if decode_any()
// must decide.
bool FeatureDecoder::decode_plain(std::size_t column, Bytes feature, std::size_t row,
                                  BatchBuilder* batch) const {
  const ColumnSpec& spec = schema_->columns[column];
  if (spec.layout == Layout::kTensor) return false;
  Bytes list, run;
  if (!find_plain_list(feature, spec.kind, &list)) return false;
  if (spec.has_row_splits()) return append_plain_row(spec, column, list, batch);
  if (!find_plain_field(list, kTagOne, &run) &&
      !(spec.n_values == 1 && find_lone_number(list, spec.kind, &run))) {
    return false;
  }
  if (spec.kind != FeatureKind::kBytes) {
    return decode_plain_numbers(run, spec.kind, spec.n_values, spec.dtype,
                                batch->row(column, row));
  }
  if (spec.layout == Layout::kDense) {
    if (spec.n_values != 1) return false;
    batch->append_string(column, run);
    return true;
  }
  if (run.size() != spec.row_bytes() || spec.swap_bytes > 1 || run.empty() ||
      spec.dtype == DType::kBool) {
    return false;
  }
  std::memcpy(batch->row(column, row), run.data(), run.size());
  return true;
}

Fault FeatureDecoder::decode_any(std::size_t column, Bytes feature, std::size_t row,
                                 BatchBuilder* batch) {
  const ColumnSpec& spec = schema_->columns[column];
  ValueList list;
  if (Fault fault = find_list_of(spec, feature, &joined_, &list)) return fault;
  if (list.kind == FeatureKind::kNone) return fill_unset(column, row, batch);
  if (spec.has_row_splits() && spec.dtype == DType::kBytes) {
    return decode_strings(column, list.message, batch);
  }
  std::size_t n;
  if (Fault fault = count_values(list, &n)) return fault;

  switch (spec.layout) {
    case Layout::kRaw:
      return decode_raw(spec, list, n, batch->row(column, row));
    case Layout::kDense:
      if (n != spec.n_values) {
        return {.code = Errc::kValueCount, .found = n, .expected = spec.n_values};
      }
      if (spec.dtype == DType::kBytes) {
        for_each_string(list.message,
                        [&](Bytes value) { batch->append_string(column, value); });
        return {};
      }
      return decode_numbers(list, n, spec.dtype, batch->row(column, row));
    case Layout::kTensor:
      return decode_tensor(column, list, n, row, batch);
    case Layout::kRagged:
    case Layout::kPadded:
    case Layout::kRecord:
      break;
  }
  return decode_items(column, list, n, batch);
}

// Decodes a list of one byte string as a serialized tensor.
Fault FeatureDecoder::decode_tensor(std::size_t column, const ValueList& list,
                                    std::size_t n, std::size_t row,
                                    BatchBuilder* batch) {
  const ColumnSpec& spec = schema_->columns[column];
  if (n != 1) return {.code = Errc::kValueCount, .found = n, .expected = 1};
  Bytes message;
  for_each_string(list.message, [&](Bytes value) { message = value; });
  if (Fault fault = tensor_.read(message)) return fault;
  if (spec.tensor_dtype == 0) {
    serialize(tensor_, &serialized_tensor_);
    batch->append_string(column, serialized_tensor_);
    return {};
  }
  if (tensor_.dtype() != spec.tensor_dtype) {
    return {.code = Errc::kTensorType, .found = tensor_.dtype()};
  }
  if (tensor_.shape() != spec.tensor_shape) return {.code = Errc::kTensorShape};
  if (spec.dtype == DType::kBytes) {
    for (const Bytes string : tensor_.strings()) batch->append_string(column, string);
    return {};
  }
  std::transform(
      tensor_.memory().begin(), tensor_.memory().end(), batch->row(column, row),
      [is_bool = spec.dtype == DType::kBool](std::uint8_t byte) -> std::uint8_t {
        return is_bool ? byte != 0 : byte;
      });
  return {};
}

// Decodes a list of `n` numbers into a ragged or padded column.
Fault FeatureDecoder::decode_items(std::size_t column, const ValueList& list,
                                   std::size_t n, BatchBuilder* batch) const {
  const ColumnSpec& spec = schema_->columns[column];
  std::size_t n_kept;
  if (Fault fault = count_kept(spec, n, &n_kept)) return fault;
  std::uint8_t* target = batch->extend(column, n * spec.item_bytes);
  if (Fault fault = decode_numbers(list, n, spec.dtype, target)) return fault;
  batch->retract(column, n - n_kept);
  batch->end_ragged_row(column, spec.n_items(n_kept));
  return {};
}

// The same for byte strings, which are counted while they are read.
Fault FeatureDecoder::decode_strings(std::size_t column, Bytes list,
                                     BatchBuilder* batch) const {
  const ColumnSpec& spec = schema_->columns[column];
  const std::size_t n_max = spec.truncate && spec.length
                                ? *spec.length * spec.n_values
                                : std::numeric_limits<std::size_t>::max();
  std::size_t n = 0, n_kept;
  FieldReader fields(list);
  Bytes string;
  while (fields.next_message(1, &string)) {
    if (n++ < n_max) batch->append_string(column, string);
  }
  if (fields.fault()) return fields.fault();
  if (Fault fault = count_kept(spec, n, &n_kept)) return fault;
  batch->end_ragged_row(column, spec.n_items(n_kept));
  return {};
}

Fault FeatureDecoder::fill_missing(std::size_t column, std::size_t row,
                                   BatchBuilder* batch) const {
  const ColumnSpec& spec = schema_->columns[column];
  if (spec.has_row_splits()) {
    batch->end_ragged_row(column, 0);
  } else if (spec.default_strings) {
    for (const std::string& value : *spec.default_strings) {
      batch->append_string(column, as_bytes(value));
    }
  } else if (spec.default_values) {
    std::copy(spec.default_values->begin(), spec.default_values->end(),
              batch->row(column, row));
  } else {
    return {.code = Errc::kFeatureMissing};
  }
  return {};
}

// A feature without a kind is missing. But in a context, TensorFlow applies defaults to
// absent features only.
Fault FeatureDecoder::fill_unset(std::size_t column, std::size_t row,
                                 BatchBuilder* batch) const {
  const ColumnSpec& spec = schema_->columns[column];
  if (spec.section == Section::kContext && !spec.has_row_splits()) {
    return {.code = Errc::kValueCount,
            .found = 0,
            .expected = spec.layout == Layout::kDense ? spec.n_values : 1};
  }
  return fill_missing(column, row, batch);
}

}  // namespace fastrec
