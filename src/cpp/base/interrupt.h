// Interrupts: end a wait for the network early.
//
// A thread that waits calls check_interrupt() several times a second. The check that the
// thread installed throws to end the wait. A thread without one uses the default check,
// which Python sets to look for signals.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

namespace fastrec {

namespace detail {
inline std::atomic<void (*)()> default_interrupt_check{nullptr};
inline thread_local const std::function<void()>* interrupt_check = nullptr;
}  // namespace detail

// Installs a check in this thread for the lifetime of the scope.
class InterruptScope {
 public:
  explicit InterruptScope(std::function<void()> check)
      : check_(std::move(check)),
        outer_(std::exchange(detail::interrupt_check, &check_)) {}
  ~InterruptScope() { detail::interrupt_check = outer_; }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  const std::function<void()> check_;
  const std::function<void()>* const outer_;
};

inline void set_default_interrupt_check(void (*check)()) noexcept {
  detail::default_interrupt_check = check;
}

// Throws if this thread should stop waiting.
inline void check_interrupt() {
  if (detail::interrupt_check != nullptr) return (*detail::interrupt_check)();
  if (const auto check = detail::default_interrupt_check.load()) check();
}

}  // namespace fastrec
