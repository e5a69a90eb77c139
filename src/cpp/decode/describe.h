// Describe: a fault of a record -> its message, without file and position.
#pragma once

#include <string>

#include "base/error.h"
#include "batch/schema.h"

namespace fastrec {

// `fault` is of a record, or of a column of `schema`.
std::string describe(const Fault& fault, const Schema& schema);

}  // namespace fastrec
