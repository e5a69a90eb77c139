// BackOff: skips a fast path for a while after it failed several times in a row.
#pragma once

#include <cstddef>

namespace fastrec {

class BackOff {
 public:
  // Whether to try the next record.
  bool tries_next() noexcept {
    if (n_declined_ == 0) return true;
    --n_declined_;
    return false;
  }

  // Returns whether `read()` succeeds. Returns false without calling `read` while it
  // backs off.
  template <typename Read>
  bool attempt(Read&& read) {
    if (!tries_next()) return false;
    const bool is_success = read();
    report(is_success);
    return is_success;
  }

  void report(bool is_success) noexcept {
    if (is_success) {
      n_failures_ = n_declined_ = 0;
    } else if (++n_failures_ == kFailuresMax) {
      n_failures_ = 0;
      n_declined_ = kDeclined;
    }
  }

 private:
  static constexpr std::size_t kFailuresMax = 8, kDeclined = 1024;

  std::size_t n_failures_ = 0;  // in a row
  std::size_t n_declined_ = 0;  // records to come that are not tried
};

}  // namespace fastrec
