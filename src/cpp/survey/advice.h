// Advice: a record that does not fit its spec -> what its user may have meant.
//
// Runs where an error is made, so it may allocate and read the record again.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/schema.h"
#include "decode/decode.h"

namespace fastrec {

// The keys of the features of `record`, or of its feature lists if `section` is kLists,
// each once, in the order of the record; the first 1,000 of them.
std::vector<std::string> names_in(Bytes record, Section section);

// The spec that would read the byte string of a feature, to end a sentence; "" if
// `fault` is about something else, or no spec fits.
std::string fitting_spec(const ColumnSpec& spec, const Fault& fault, Bytes record);

// The error that `fault` of `decoder` in `record` is, without the place.
Error explain(const ExampleDecoder& decoder, const Fault& fault, Bytes record);

}  // namespace fastrec
