// Advice: a record that does not fit its spec -> what its user may have meant.
//
// Runs where an error is made, so it may allocate and read the record again.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "batch/schema.h"

namespace fastrec {

// The keys of the features of `record`, or of its feature lists if `section` is kLists,
// each once, in the order of the record; the first 1,000 of them.
std::vector<std::string> names_in(Bytes record, Section section);

}  // namespace fastrec
