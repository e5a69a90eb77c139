// Process: which process this is. A fork copies memory and the locks in it, but none of
// the threads that would have released them.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace fastrec {

namespace detail {
inline std::atomic<int> process_id{0};
}  // namespace detail

// Not a system call, so it can be asked for every block and batch.
inline int process_id() noexcept {
  static const bool is_known = [] {
    const auto note = [] { detail::process_id = ::getpid(); };
    note();
    return ::pthread_atfork(nullptr, nullptr, note) == 0;
  }();
  return is_known ? detail::process_id.load(std::memory_order_relaxed) : ::getpid();
}

}  // namespace fastrec
