// Process: which process this is. A fork copies memory and the locks in it, but none of
// the threads that would have released them.
#pragma once

#include <unistd.h>

namespace fastrec {

inline int process_id() noexcept { return ::getpid(); }

}  // namespace fastrec
