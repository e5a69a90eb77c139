// Process: which process this is. A fork copies memory and the locks in it, but none of
// the threads that would have released them.
#pragma once

#if defined(_WIN32)
#include <process.h>
#else
#include <unistd.h>
#endif

namespace fastrec {

inline int process_id() noexcept {
#if defined(_WIN32)
  return ::_getpid();
#else
  return ::getpid();
#endif
}

}  // namespace fastrec
