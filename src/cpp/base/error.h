// Errors: a Fault has a code and a byte offset; an Error adds the text and the file.
//
//   data plane     returns  Fault   a code and four numbers, no allocation
//   control plane  throws   Error   reason, file, record, byte, feature
//   bindings       raise    Python  one class per ErrorClass (docs/errors.md)
//
// The data plane runs once per record or value on worker threads, so it neither throws
// nor allocates. The control plane runs once per file or batch and may do both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/names.h"

namespace fastrec {

enum class Errc : std::uint8_t {
  kOk = 0,

  // Framing.
  kTruncatedHeader,   // the file ends inside the 12 bytes before a payload
  kTruncatedPayload,  // the file ends inside the payload or its checksum; `found` and
                      // `expected` count the bytes of both
  kLengthCrc,         // the length does not match its checksum
  kPayloadCrc,        // the payload does not match its checksum
  kIndexMismatch,     // an index entry does not point to a frame of that length
  kIndexPastEnd,      // an index entry points past the end of the file
  kFileChanged,       // the file was modified after it was indexed or opened
  kNotTfrecord,       // the file is text
  kCompressed,        // the file is a gzip or zlib stream, opened as a plain file
  kStream,            // a gzip or zlib stream is damaged
  kZeros,             // the file ends with zero bytes instead of frames

  // Wire format.
  kVarintTooLong,      // more than 10 bytes
  kVarintCut,          // the message ends inside a varint
  kLengthPastEnd,      // a length exceeds what is left of the message
  kFixedCut,           // the message ends inside a fixed32 or fixed64
  kWireType,           // wire type 6 or 7, which do not exist
  kFieldNumber,        // field number 0, or a tag above 32 bits
  kGroup,              // a group is unbalanced or nested too deeply
  kPackedFloatLength,  // packed floats whose length is not a multiple of 4
  kNotExample,         // another message than an Example or SequenceExample

  // Schema.
  kSequence,         // a SequenceExample instead of an Example
  kFeatureMissing,   // a required feature is absent
  kFeatureKind,      // a feature has the wrong kind of values
  kValueCount,       // a feature has the wrong number of values
  kValueSize,        // a byte string has the wrong size for its array
  kValueOutOfRange,  // an integer does not fit the dtype
  kStepCount,        // a feature list has more steps than its spec allows
  kPartitionOrder,   // a partition of a list into rows decreases
  kPartitionTotal,   // a partition covers the wrong number of items
  kPartitionRows,    // a partition has more rows than a record may have
  kTensorType,       // not a serialized tensor, or of an unsupported dtype
  kTensorShape,      // a tensor has the wrong shape, or an unknown one
  kTensorSize,       // a tensor has more values than the limit
  kIndexCount,       // a sparse feature does not have one index per value
  kIndexOutOfRange,  // an index of a sparse feature is not below its size

  // Limits.
  kRecordTooLarge,
  kTooManyFeatures,  // and the caller did not select features
  kPaddingTooLarge,  // a padded column exceeds the memory limit

  kUnexpected,  // a thread failed with any other exception
};
inline constexpr std::size_t kErrcCount =
    static_cast<std::size_t>(Errc::kUnexpected) + 1;

struct [[nodiscard]] Fault {
  Errc code = Errc::kOk;
  std::int32_t column = -1;    // index in the schema; -1 if the fault has no column
  std::uint64_t offset = 0;    // byte of the callee's input
  std::uint64_t found = 0;     // the value read; its meaning depends on `code`
  std::uint64_t expected = 0;  // the value that would be valid

  explicit operator bool() const noexcept { return code != Errc::kOk; }
};

// The Python class of an Error.
enum class ErrorClass : std::uint8_t { kError, kCorruption, kDecode, kSchema, kLimit };

template <>
struct Names<ErrorClass> {
  static constexpr const char* kAll[] = {"Error", "CorruptionError", "DecodeError",
                                         "SchemaError", "LimitError"};
};

ErrorClass error_class(Errc code) noexcept;

// The value of Error.code in Python: unique and stable (docs/errors.md).
const char* code_name(Errc code) noexcept;
// The inverse; kUnexpected for an unknown name.
Errc errc_named(std::string_view name) noexcept;

// Whether the fault concerns one record only, so that a reader may skip that record.
bool is_of_record(Errc code) noexcept;

// The text of an error, without its place. Schema faults continue a sentence that
// begins with the name of the feature; `spec` is a clause about its spec.
std::string describe(const Fault& fault, std::string_view spec = "");

class Error : public std::runtime_error {
 public:
  Error(Errc code, std::string reason, std::string path);

  Errc code;
  std::string reason;
  std::string path;                     // empty for records in memory
  std::optional<std::uint64_t> record;  // index of the record in `path`
  std::optional<std::uint64_t> offset;  // byte of `path`, or of the record in memory
  std::string feature;                  // key of the feature, or empty
  // For a missing feature: the names in the record, and the hint if none is similar.
  std::vector<std::string> names;
  std::string advice;
  // For a byte string that another spec may read: its record, and the row of its spec.
  struct Misread {
    std::string record;
    std::vector<std::int64_t> shape;
    std::string dtype;
  };
  Misread misread;
};

// A failed system call. Not a std::system_error, because Python needs errno and path
// separately to raise FileNotFoundError and the like.
class IoError : public std::runtime_error {
 public:
  IoError(int errno_value, std::string path);

  int errno_value;
  std::string path;
};

}  // namespace fastrec
