// Process: the id of this process, to detect a fork. A forked child has copies of the
// locks of its parent, but not of the threads that would release them.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace fastrec {

namespace detail {
inline std::atomic<int> process_id{0};
}  // namespace detail

// Cached: cheap enough to call for every block and batch.
inline int process_id() noexcept {
  static const bool is_cached = [] {
    const auto store = [] { detail::process_id = ::getpid(); };
    store();
    return ::pthread_atfork(nullptr, nullptr, store) == 0;
  }();
  return is_cached ? detail::process_id.load(std::memory_order_relaxed) : ::getpid();
}

}  // namespace fastrec
