// Advice: a record that does not match its spec -> a hint for the error message.
//
// Runs only when an error is raised, so it may allocate and read the record again.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "batch/schema.h"

namespace fastrec {

// The first 1,000 distinct keys of the features of `record`, in its order, or of its
// feature lists if `section` is kLists.
std::vector<std::string> names_in(Bytes record, Section section);

// Returns the error for a `fault` of `record` or a column, without file and position.
Error explain(const Schema& schema, const Fault& fault, Bytes record);

}  // namespace fastrec
