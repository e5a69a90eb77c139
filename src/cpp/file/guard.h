// Guard: a SIGBUS handler that replaces lost pages of mapped files by zeros.
//
// Reading a page past the end of a truncated file raises SIGBUS, which kills the
// process. In a guarded range, the handler records the address of the lost page, then
// maps zeros over that page and the rest of the range. Readers check the record before
// they use mapped data. Any other SIGBUS goes to the previously installed handler.
//
// Invariants
//   * The first n_valid() bytes of a guarded range were never replaced by zeros.
//   * The handler takes no lock and allocates no memory: the ranges are in a table of
//     atomics that only grows.
//   * A forked child inherits the handler and the ranges.
//
// FASTREC_SIGBUS_GUARD=0 disables the guard.
#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace fastrec {

// Whether the guard is enabled. Throws std::invalid_argument if FASTREC_SIGBUS_GUARD is
// neither 0 nor 1.
bool is_guard_enabled();

// Installs the handler, also in front of handlers that were installed later, and
// unblocks SIGBUS in the calling thread. Each thread calls this before it reads mapped
// bytes. Costs two system calls.
void install_guard();

// Guards a mapping for the lifetime of the object.
class GuardedRange {
 public:
  // `mapped` begins at a page boundary and is not read after this object is destroyed.
  // Throws std::bad_alloc.
  explicit GuardedRange(Bytes mapped);
  ~GuardedRange();
  GuardedRange(const GuardedRange&) = delete;
  GuardedRange& operator=(const GuardedRange&) = delete;

  // All bytes that this thread has read below n_valid() came from the file. Costs two
  // loads.
  std::size_t n_valid() const noexcept;

  struct Entry;

 private:
  Entry* entry_ = nullptr;  // in the table; nullptr if the guard is disabled
};

}  // namespace fastrec
