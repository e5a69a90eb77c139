// in_threads: a function -> its calls in several threads.
#pragma once

#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace fastrec {

// Calls work(i) for every i below `n`, each in its own thread.
template <typename Work>
void in_threads(std::size_t n, const Work& work) {
  // An uncaught exception in a thread would terminate the process.
  std::vector<std::exception_ptr> failures(n);
  const auto run = [&](std::size_t i) {
    try {
      work(i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;  // Apple's library has no std::jthread
  threads.reserve(n);
  for (std::size_t i = 1; i < n; ++i) {
    try {
      threads.emplace_back(run, i);
    } catch (...) {
      run(i);  // the system cannot create more threads
    }
  }
  run(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace fastrec
