#include "base/error.h"

#include <system_error>
#include <utility>

namespace fastrec {
namespace {

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

ErrorClass error_class(Errc code) noexcept {
  switch (code) {
    case Errc::kTruncatedHeader:
    case Errc::kTruncatedPayload:
    case Errc::kLengthCrc:
    case Errc::kPayloadCrc:
    case Errc::kIndexMismatch:
    case Errc::kIndexPastEnd:
    case Errc::kFileChanged:
    case Errc::kNotTfrecord:
    case Errc::kStream:
    case Errc::kZeros:
      return ErrorClass::kCorruption;
    case Errc::kVarintTooLong:
    case Errc::kVarintCut:
    case Errc::kLengthPastEnd:
    case Errc::kFixedCut:
    case Errc::kWireType:
    case Errc::kFieldNumber:
    case Errc::kGroup:
    case Errc::kPackedFloatLength:
      return ErrorClass::kDecode;
    case Errc::kFeatureMissing:
    case Errc::kFeatureKind:
    case Errc::kValueCount:
    case Errc::kValueSize:
    case Errc::kValueOutOfRange:
    case Errc::kStepCount:
    case Errc::kPartitionOrder:
    case Errc::kPartitionTotal:
    case Errc::kPartitionRows:
    case Errc::kTensorType:
    case Errc::kTensorShape:
    case Errc::kTensorSize:
    case Errc::kIndexCount:
    case Errc::kIndexOutOfRange:
      return ErrorClass::kSchema;
    case Errc::kRecordTooLarge:
    case Errc::kTooManyFeatures:
    case Errc::kPaddingTooLarge:
      return ErrorClass::kLimit;
    case Errc::kCompressed:
    case Errc::kOk:
      break;
  }
  return ErrorClass::kError;
}

bool is_of_record(Errc code) noexcept {
  switch (error_class(code)) {
    case ErrorClass::kDecode:
    case ErrorClass::kSchema:
      return true;
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
