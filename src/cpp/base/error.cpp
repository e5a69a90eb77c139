#include "base/error.h"

#include <system_error>
#include <utility>

namespace fastrec {
namespace {

struct Entry {
  Errc errc;
  const char* name;
  ErrorClass error_class;
};

constexpr Entry kTable[] = {
    {Errc::kOk, "ok", ErrorClass::kError},
    {Errc::kTruncatedHeader, "truncated_header", ErrorClass::kCorruption},
    {Errc::kTruncatedPayload, "truncated_record", ErrorClass::kCorruption},
    {Errc::kLengthCrc, "length_checksum", ErrorClass::kCorruption},
    {Errc::kPayloadCrc, "payload_checksum", ErrorClass::kCorruption},
    {Errc::kIndexMismatch, "index_mismatch", ErrorClass::kCorruption},
    {Errc::kIndexPastEnd, "index_past_end", ErrorClass::kCorruption},
    {Errc::kFileChanged, "file_changed", ErrorClass::kCorruption},
    {Errc::kNotTfrecord, "not_tfrecord", ErrorClass::kCorruption},
    {Errc::kCompressed, "compressed", ErrorClass::kError},
    {Errc::kStream, "damaged_stream", ErrorClass::kCorruption},
    {Errc::kZeros, "trailing_zeros", ErrorClass::kCorruption},
    {Errc::kVarintTooLong, "long_varint", ErrorClass::kDecode},
    {Errc::kVarintCut, "truncated_varint", ErrorClass::kDecode},
    {Errc::kLengthPastEnd, "length_past_end", ErrorClass::kDecode},
    {Errc::kFixedCut, "truncated_number", ErrorClass::kDecode},
    {Errc::kWireType, "wire_type", ErrorClass::kDecode},
    {Errc::kFieldNumber, "field_number", ErrorClass::kDecode},
    {Errc::kGroup, "group", ErrorClass::kDecode},
    {Errc::kPackedFloatLength, "packed_floats", ErrorClass::kDecode},
    {Errc::kSequence, "sequence_example", ErrorClass::kSchema},
    {Errc::kFeatureMissing, "feature_missing", ErrorClass::kSchema},
    {Errc::kFeatureKind, "feature_kind", ErrorClass::kSchema},
    {Errc::kValueCount, "value_count", ErrorClass::kSchema},
    {Errc::kValueSize, "value_size", ErrorClass::kSchema},
    {Errc::kValueOutOfRange, "value_range", ErrorClass::kSchema},
    {Errc::kStepCount, "step_count", ErrorClass::kSchema},
    {Errc::kPartitionOrder, "partition_order", ErrorClass::kSchema},
    {Errc::kPartitionTotal, "partition_total", ErrorClass::kSchema},
    {Errc::kPartitionRows, "partition_rows", ErrorClass::kSchema},
    {Errc::kTensorType, "tensor_type", ErrorClass::kSchema},
    {Errc::kTensorShape, "tensor_shape", ErrorClass::kSchema},
    {Errc::kTensorSize, "tensor_size", ErrorClass::kSchema},
    {Errc::kIndexCount, "index_count", ErrorClass::kSchema},
    {Errc::kIndexOutOfRange, "index_range", ErrorClass::kSchema},
    {Errc::kRecordTooLarge, "record_size", ErrorClass::kLimit},
    {Errc::kTooManyFeatures, "feature_count", ErrorClass::kLimit},
    {Errc::kPaddingTooLarge, "padded_size", ErrorClass::kLimit},
    {Errc::kUnexpected, "unexpected", ErrorClass::kError},
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
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) {
    text += kDigits[(value >> shift) & 0xf];
  }
  return text;
}

std::string stored_and_computed(const Fault& fault) {
  return " (stored " + hex32(fault.found) + ", computed " + hex32(fault.expected) + ")";
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

std::string describe(const Fault& fault) {
  switch (fault.code) {
    case Errc::kOk:
      return "no error";
    case Errc::kTruncatedHeader:
      return "the file ends inside a record header (" + std::to_string(fault.found) +
             " of " + std::to_string(fault.expected) + " bytes)";
    case Errc::kTruncatedPayload:
      return "the file ends inside a record (" + std::to_string(fault.found) + " of " +
             std::to_string(fault.expected) + " bytes)";
    case Errc::kLengthCrc:
      return "length checksum mismatch" + stored_and_computed(fault);
    case Errc::kPayloadCrc:
      return "payload checksum mismatch" + stored_and_computed(fault);
    case Errc::kIndexMismatch:
      return "the index does not fit the file: the record that begins here ends at "
             "byte " +
             std::to_string(fault.found) + ", the index says " +
             std::to_string(fault.expected);
    case Errc::kIndexPastEnd:
      return "the index does not fit the file: it points past the end of the file (" +
             std::to_string(fault.found) + " bytes)";
    case Errc::kFileChanged:
      return "the file changed since it was indexed";
    case Errc::kNotTfrecord:
      return "not a TFRecord file";
    case Errc::kCompressed:
      return "the file is compressed";
    case Errc::kStream:
      return "the compressed stream is damaged";
    case Errc::kZeros:
      return "the file ends in " + std::to_string(fault.found) +
             " bytes of zeros, which are no records";
    case Errc::kVarintTooLong:
      return "a varint is longer than 10 bytes";
    case Errc::kVarintCut:
      return "the message ends inside a varint";
    case Errc::kLengthPastEnd:
      return "a length of " + std::to_string(fault.found) +
             " reaches past the end of its message (" + std::to_string(fault.expected) +
             " bytes left)";
    case Errc::kFixedCut:
      return "the message ends inside a fixed-size value";
    case Errc::kWireType:
      return "wire type " + std::to_string(fault.found) + " does not exist";
    case Errc::kFieldNumber:
      return "a field has an impossible number";
    case Errc::kGroup:
      return "a group has no begin or no end, or is nested too deeply";
    case Errc::kPackedFloatLength:
      return "packed floats take " + std::to_string(fault.found) +
             " bytes, which is not a multiple of 4";
    case Errc::kSequence:
      return "the record is a tf.train.SequenceExample, whose feature lists are not "
             "read as features: pass context_features= and sequence_features= to "
             "fastrec.open, or call fastrec.parse_sequence_example or "
             "fastrec.decode_sequence_example";
    case Errc::kFeatureMissing:
      return "a required feature is missing";
    case Errc::kFeatureKind:
      return "a feature holds another kind of values than its spec says";
    case Errc::kValueCount:
      return "a feature holds another number of values than its spec says";
    case Errc::kValueSize:
      return "a byte string has another size than its spec says";
    case Errc::kValueOutOfRange:
      return "an integer does not fit the requested dtype";
    case Errc::kStepCount:
      return "a list of features has more steps than its spec says";
    case Errc::kPartitionOrder:
    case Errc::kPartitionTotal:
    case Errc::kPartitionRows:
      return "a partition does not fit the values that it divides";
    case Errc::kTensorType:
    case Errc::kTensorShape:
    case Errc::kTensorSize:
      return "a serialized tensor is not what its spec says";
    case Errc::kIndexCount:
    case Errc::kIndexOutOfRange:
      return "an index of a sparse feature does not fit";
    case Errc::kRecordTooLarge:
      return "a record of " + std::to_string(fault.found) +
             " bytes is larger than the limit of " + std::to_string(fault.expected);
    case Errc::kTooManyFeatures:
      return "there are more than " + std::to_string(fault.expected) +
             " features: say with features= which are wanted";
    case Errc::kPaddingTooLarge:
      return "a column takes more memory than the limit once it is padded";
    case Errc::kUnexpected:
      return "reading failed";
  }
  return "unknown error";
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
