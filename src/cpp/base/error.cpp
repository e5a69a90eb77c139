#include "base/error.h"

#include <cstdio>
#include <system_error>
#include <utility>

namespace fastrec {
namespace {

struct Entry {
  Errc errc;
  const char* name;
  ErrorClass error_class;
  const char* text;  // describe() fills in the {placeholders}
};

// Texts of schema errors follow the name of a feature.
constexpr Entry kTable[] = {
    {Errc::kOk, "ok", ErrorClass::kError, "no error"},
    {Errc::kTruncatedHeader, "truncated_header", ErrorClass::kCorruption,
     "the file ends inside a record header ({found} of {expected} bytes)"},
    {Errc::kTruncatedPayload, "truncated_record", ErrorClass::kCorruption,
     "the file ends inside a record ({found} of {expected} bytes)"},
    {Errc::kLengthCrc, "length_checksum", ErrorClass::kCorruption,
     "length checksum mismatch {checksums}"},
    {Errc::kPayloadCrc, "payload_checksum", ErrorClass::kCorruption,
     "payload checksum mismatch {checksums}"},
    {Errc::kIndexMismatch, "index_mismatch", ErrorClass::kCorruption,
     "the index is stale: the records of the file are at other places"},
    {Errc::kIndexPastEnd, "index_past_end", ErrorClass::kCorruption,
     "the index does not match the file: an entry is past the end of the file "
     "({found} bytes)"},
    {Errc::kFileChanged, "file_changed", ErrorClass::kCorruption,
     "the file changed since it was indexed"},
    {Errc::kNotTfrecord, "not_tfrecord", ErrorClass::kCorruption,
     "not a TFRecord file"},
    {Errc::kCompressed, "compressed", ErrorClass::kError, "the file is compressed"},
    {Errc::kStream, "damaged_stream", ErrorClass::kCorruption,
     "the compressed stream is damaged"},
    {Errc::kZeros, "trailing_zeros", ErrorClass::kCorruption,
     "the file ends with {found} zero bytes"},
    {Errc::kVarintTooLong, "long_varint", ErrorClass::kDecode,
     "a varint is longer than 10 bytes"},
    {Errc::kVarintCut, "truncated_varint", ErrorClass::kDecode,
     "the message ends inside a varint"},
    {Errc::kLengthPastEnd, "length_past_end", ErrorClass::kDecode,
     "a length of {found} exceeds the {expected} bytes left in its message"},
    {Errc::kFixedCut, "truncated_number", ErrorClass::kDecode,
     "the message ends inside a fixed-size value"},
    {Errc::kWireType, "wire_type", ErrorClass::kDecode, "invalid wire type {found}"},
    {Errc::kFieldNumber, "field_number", ErrorClass::kDecode, "invalid field number"},
    {Errc::kGroup, "group", ErrorClass::kDecode,
     "a group is unbalanced or nested too deeply"},
    {Errc::kPackedFloatLength, "packed_floats", ErrorClass::kDecode,
     "packed floats must have a multiple of 4 bytes, got {found}"},
    {Errc::kNotExample, "not_example", ErrorClass::kDecode,
     "the record is not a tf.train.Example"},
    {Errc::kSequence, "sequence_example", ErrorClass::kSchema,
     "expected a tf.train.Example, got a SequenceExample: pass context_features= and "
     "sequence_features= to fastrec.open, or call fastrec.parse_sequence_example or "
     "fastrec.decode_sequence_example"},
    {Errc::kFeatureMissing, "feature_missing", ErrorClass::kSchema,
     "is missing and has no default ({spec})"},
    {Errc::kFeatureKind, "feature_kind", ErrorClass::kSchema,
     "holds the wrong kind of values ({spec})"},
    {Errc::kValueCount, "value_count", ErrorClass::kSchema,
     "holds the wrong number of values ({spec})"},
    {Errc::kValueSize, "value_size", ErrorClass::kSchema,
     "holds a string of {found} bytes, expected {expected} ({spec})"},
    {Errc::kValueOutOfRange, "value_range", ErrorClass::kSchema,
     "holds {signed}, which is out of range ({spec}); use \"int64\""},
    {Errc::kStepCount, "step_count", ErrorClass::kSchema,
     "has {found} steps, expected {expected} ({spec})"},
    {Errc::kPartitionOrder, "partition_order", ErrorClass::kSchema,
     "is not a valid partition: its values decrease or start wrongly ({spec})"},
    {Errc::kPartitionTotal, "partition_total", ErrorClass::kSchema,
     "partitions {found} items, but the list has {expected} ({spec})"},
    {Errc::kPartitionRows, "partition_rows", ErrorClass::kSchema,
     "has {found} rows, more than the limit of {expected} per record ({spec})"},
    {Errc::kTensorType, "tensor_type", ErrorClass::kSchema,
     "holds no serialized tensor of a matching dtype (found type {found}; {spec})"},
    {Errc::kTensorShape, "tensor_shape", ErrorClass::kSchema,
     "holds a tensor of the wrong shape ({spec})"},
    {Errc::kTensorSize, "tensor_size", ErrorClass::kSchema,
     "holds a tensor with too many values ({spec})"},
    {Errc::kIndexCount, "index_count", ErrorClass::kSchema,
     "holds {found} indices for {expected} values ({spec})"},
    {Errc::kIndexOutOfRange, "index_range", ErrorClass::kSchema,
     "holds the index {signed}, but its size is {expected} ({spec})"},
    {Errc::kRecordTooLarge, "record_size", ErrorClass::kLimit,
     "a record of {found} bytes exceeds the limit of {expected}: "
     "limits=fastrec.Limits(max_record_bytes=...), at most 2^31 - 1 as in protobuf; "
     "TFRecord files allow 2^64 - 1"},
    {Errc::kTooManyFeatures, "feature_count", ErrorClass::kLimit,
     "the records have more than {expected} features: select some with features="},
    {Errc::kPaddingTooLarge, "padded_size", ErrorClass::kLimit,
     "a padded column exceeds the memory limit"},
    {Errc::kUnexpected, "unexpected", ErrorClass::kError, "reading failed"},
};

constexpr bool is_in_order() {
  std::size_t i = 0;
  for (const Entry& entry : kTable) {
    if (static_cast<std::size_t>(entry.errc) != i++) return false;
  }
  return i == kErrcCount;
}
static_assert(is_in_order());

const Entry& entry_of(Errc code) noexcept {
  return kTable[static_cast<std::size_t>(code)];
}

std::string hex32(std::uint64_t value) {
  char text[sizeof "0x00000000"];
  std::snprintf(text, sizeof text, "0x%08x", static_cast<unsigned>(value));
  return text;
}

}  // namespace

ErrorClass error_class(Errc code) noexcept { return entry_of(code).error_class; }

const char* code_name(Errc code) noexcept { return entry_of(code).name; }

Errc errc_named(std::string_view name) noexcept {
  for (const Entry& entry : kTable) {
    if (entry.name == name) return entry.errc;
  }
  return Errc::kUnexpected;
}

bool is_of_record(Errc code) noexcept {
  switch (error_class(code)) {
    case ErrorClass::kDecode:
      return true;
    case ErrorClass::kSchema:
      return code != Errc::kSequence;
    case ErrorClass::kLimit:
      return code == Errc::kRecordTooLarge;
    case ErrorClass::kCorruption:
      return code == Errc::kPayloadCrc || code == Errc::kLengthCrc;
    case ErrorClass::kError:
      break;
  }
  return false;
}

std::string describe(const Fault& fault, std::string_view spec) {
  std::string text = entry_of(fault.code).text;
  const auto fill = [&text](std::string_view place, std::string_view value) {
    if (const auto at = text.find(place); at != text.npos) {
      text.replace(at, place.size(), value);
    }
  };
  fill("{found}", std::to_string(fault.found));
  fill("{signed}", std::to_string(static_cast<std::int64_t>(fault.found)));
  fill("{expected}", std::to_string(fault.expected));
  fill("{checksums}",
       "(stored " + hex32(fault.found) + ", computed " + hex32(fault.expected) + ")");
  fill("{spec}", spec);
  return text;
}

Error::Error(Errc code_, std::string reason_, std::string path_)
    : std::runtime_error(path_.empty() ? reason_ : reason_ + " - at " + path_),
      code(code_),
      reason(std::move(reason_)),
      path(std::move(path_)) {}

IoError::IoError(int errno_value_, std::string path_)
    : std::runtime_error(std::generic_category().message(errno_value_) + ": " + path_),
      errno_value(errno_value_),
      path(std::move(path_)) {}

}  // namespace fastrec
