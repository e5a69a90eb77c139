// Errors: a Fault says what is wrong and where; an Error adds in whose data.
//
//   leaf      returns  Fault   a code and four numbers, no allocation
//   stage     throws   Error   reason, file, record, byte, feature
//   bindings  raise    Python  one class per ErrorClass (docs/errors.md)
//
// Leaves run once per record or value on worker threads, so they neither throw nor
// allocate. Stages run once per file or batch, so they may do both.
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
  kTruncatedPayload,  // the file ends inside the payload or its checksum, which are
                      // what `found` and `expected` count
  kLengthCrc,         // the length does not match its checksum
  kPayloadCrc,        // the payload does not match its checksum
  kIndexMismatch,     // the index says that a frame is where none is
  kIndexPastEnd,      // the index says that a frame is past the end of the file
  kFileChanged,       // the file is not the one that was indexed
  kNotTfrecord,       // the file begins with something else
  kCompressed,        // the file is a gzip or zlib stream, and is not read as one
  kStream,            // a gzip or zlib stream is damaged
  kZeros,             // the file ends in zeros, which are no frames

  // Wire format.
  kVarintTooLong,      // more than 10 bytes
  kVarintCut,          // the message ends inside a varint
  kLengthPastEnd,      // a length reaches past the end of its parent
  kFixedCut,           // the message ends inside a fixed32 or fixed64
  kWireType,           // wire type 6 or 7, which do not exist
  kFieldNumber,        // field number 0, or a tag above 32 bits
  kGroup,              // a group without its begin or its end, or too deep
  kPackedFloatLength,  // packed floats whose length is not a multiple of 4

  // Schema.
  kSequence,         // a SequenceExample where Examples are read
  kFeatureMissing,   // a required feature is absent
  kFeatureKind,      // a feature holds another kind of values
  kValueCount,       // a feature holds another number of values
  kValueSize,        // a byte string has another size than its array
  kValueOutOfRange,  // an integer does not fit the requested dtype
  kStepCount,        // a list of features has more steps than its spec says
  kPartitionOrder,   // numbers that divide a list into rows run backwards
  kPartitionTotal,   // they divide another number of items than there are
  kPartitionRows,    // they make more rows than any record may have
  kTensorType,       // not a serialized tensor, or one of a dtype that is not read
  kTensorShape,      // it has another shape than its spec says, or none
  kTensorSize,       // it has more values than any tensor may have
  kIndexCount,       // a sparse feature has not one index for each value
  kIndexOutOfRange,  // an index of a sparse feature is outside of its size

  // Limits.
  kRecordTooLarge,
  kTooManyFeatures,  // where nobody said which are wanted
  kPaddingTooLarge,  // rows that are filled up to the longest take too much memory

  // A thread that reads a file failed with an error of another kind.
  kUnexpected,
};
inline constexpr std::size_t kErrcCount =
    static_cast<std::size_t>(Errc::kUnexpected) + 1;

struct [[nodiscard]] Fault {
  Errc code = Errc::kOk;
  std::int32_t column = -1;    // index in the schema, where one is concerned
  std::uint64_t offset = 0;    // byte in what the callee was given
  std::uint64_t found = 0;     // what the bytes say; its meaning depends on `code`
  std::uint64_t expected = 0;  // what they should have said

  explicit operator bool() const noexcept { return code != Errc::kOk; }
};

// Which Python class an Error becomes.
enum class ErrorClass : std::uint8_t { kError, kCorruption, kDecode, kSchema, kLimit };

template <>
struct Names<ErrorClass> {
  static constexpr const char* kAll[] = {"Error", "CorruptionError", "DecodeError",
                                         "SchemaError", "LimitError"};
};

ErrorClass error_class(Errc code) noexcept;

// The name of an Errc in Python, where programs compare it: it never changes. Each has
// another one (docs/errors.md).
const char* code_name(Errc code) noexcept;
// The Errc of that name; kUnexpected if there is none.
Errc errc_named(std::string_view name) noexcept;

// Whether it is one record that cannot be read: those around it are not concerned. That
// a file holds SequenceExamples concerns all of it.
bool is_of_record(Errc code) noexcept;

// What is wrong, without the place. Faults of the schema follow the name of a feature;
// `spec` is what its spec says.
std::string describe(const Fault& fault, std::string_view spec = "");

class Error : public std::runtime_error {
 public:
  Error(Errc code, std::string reason, std::string path);

  Errc code;
  std::string reason;
  std::string path;                     // empty: the records came from memory
  std::optional<std::uint64_t> record;  // index of the record in `path`
  std::optional<std::uint64_t> offset;  // byte of `path`, or else of the record
  std::string feature;                  // key of the feature, or empty
  // A feature is missing: the names that the record has, and what to write if none of
  // them is near to the one asked for.
  std::vector<std::string> names;
  std::string advice;
};

// The operating system refused. Not a std::system_error: its what() cannot be taken
// apart again, and Python wants errno and path separately to pick FileNotFoundError.
class IoError : public std::runtime_error {
 public:
  IoError(int errno_value, std::string path);

  int errno_value;
  std::string path;
};

}  // namespace fastrec
