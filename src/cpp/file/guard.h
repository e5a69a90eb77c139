// Guard: pages that a mapping has lost -> pages of zeros, and a note of where they
// begin.
//
// Touching pages that a file no longer has raises SIGBUS, which ends the process. The
// guard handles that signal. In a guarded range, it notes the lost page, and then puts
// zeros in place of it and all that follow. Readers of mapped bytes check the note
// before they believe what they read. Any other SIGBUS goes to the handler installed
// before.
//
// Invariants
//   * Zeros that were read from a guarded range are outside of its n_kept() bytes.
//   * The handler takes no lock and allocates nothing: ranges are in a table of atomics
//     that only grows.
//   * A forked process has the handler and the ranges of its parent.
//
// FASTREC_SIGBUS_GUARD=0 leaves SIGBUS alone.
#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace fastrec {

// Whether lost pages are replaced. Throws std::invalid_argument if
// FASTREC_SIGBUS_GUARD is neither 0 nor 1.
bool is_guarding();

// Puts the handler in front of those that others have installed since: they would take
// a lost page for the end of the process. Unblocks SIGBUS in the calling thread: each
// thread calls this before it reads mapped bytes. Costs two system calls.
void stand_guard();

// Mapped memory that is guarded for as long as the object lives.
class GuardedRange {
 public:
  // `mapped` begins at a page, and nobody reads it after the end of this object.
  // Throws std::bad_alloc.
  explicit GuardedRange(Bytes mapped);
  ~GuardedRange();
  GuardedRange(const GuardedRange&) = delete;
  GuardedRange& operator=(const GuardedRange&) = delete;

  // At least this many first bytes came from the file in all reads of this thread so
  // far. Costs next to nothing.
  std::size_t n_kept() const noexcept;

  struct Entry;

 private:
  Entry* entry_ = nullptr;  // in the table; none where nothing is guarded
};

}  // namespace fastrec
