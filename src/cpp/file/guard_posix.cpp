#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/process.h"
#include "file/guard.h"

namespace fastrec {

// A sequence lock: `version` is odd while the range changes, so the handler never
// combines the ends of two ranges.
struct GuardedRange::Entry {
  std::atomic<bool> is_taken{false};
  std::atomic<std::uint64_t> version{0};
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<std::uintptr_t> lost_from{0};

  void set(std::uintptr_t new_begin, std::uintptr_t new_end) noexcept {
    const std::uint64_t now = version.load(std::memory_order_relaxed);
    version.store(now + 1, std::memory_order_relaxed);
    begin.store(new_begin, std::memory_order_release);
    end.store(new_end, std::memory_order_release);
    lost_from.store(std::numeric_limits<std::uintptr_t>::max(),
                    std::memory_order_release);
    version.store(now + 2, std::memory_order_release);
  }
};

namespace {

using Entry = GuardedRange::Entry;

static_assert(std::atomic<std::uintptr_t>::is_always_lock_free &&
                  std::atomic<std::uint64_t>::is_always_lock_free,
              "the handler must not wait for a lock");

// The table is a list of pieces that are never freed.
struct Piece {
  std::array<Entry, 512> entries;
  std::atomic<Piece*> next{nullptr};
};

Piece first_piece;
std::size_t page_bytes = 0;  // set before the handler is installed

Entry* take_entry() {
  for (Piece* piece = &first_piece;;) {
    for (Entry& entry : piece->entries) {
      if (!entry.is_taken.load(std::memory_order_relaxed) &&
          !entry.is_taken.exchange(true, std::memory_order_acquire)) {
        return &entry;
      }
    }
    Piece* next = piece->next.load(std::memory_order_acquire);
    if (next == nullptr) {
      auto* fresh = new Piece;
      if (piece->next.compare_exchange_strong(next, fresh, std::memory_order_acq_rel)) {
        next = fresh;
      } else {
        delete fresh;  // another thread was faster
      }
    }
    piece = next;
  }
}

// Maps zeros over the existing pages. Returns false on failure.
bool map_zeros(std::uintptr_t begin, std::size_t n_bytes) noexcept {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
#if defined(__linux__) && defined(__LP64__)
  // mmap() is not async-signal-safe by the standard, but the system call is. It also
  // avoids a false report of ThreadSanitizer about concurrent reads.
  return ::syscall(SYS_mmap, begin, n_bytes, long{PROT_READ}, long{kFlags}, -1L, 0L) !=
         -1;
#else
  return ::mmap(reinterpret_cast<void*>(begin), n_bytes, PROT_READ, kFlags, -1, 0) !=
         MAP_FAILED;
#endif
}

// Replaces the page at `address` and the rest of its range. Returns false if the
// address is not guarded or the mapping fails. Runs in the handler.
bool replace_lost(std::uintptr_t address) noexcept {
  for (Piece* piece = &first_piece; piece != nullptr;
       piece = piece->next.load(std::memory_order_acquire)) {
    for (Entry& entry : piece->entries) {
      const std::uint64_t version = entry.version.load(std::memory_order_acquire);
      const std::uintptr_t begin = entry.begin.load(std::memory_order_acquire);
      const std::uintptr_t end = entry.end.load(std::memory_order_acquire);
      // The faulting range is being read, so it does not change concurrently.
      if (version % 2 != 0 ||
          entry.version.load(std::memory_order_relaxed) != version || address < begin ||
          address >= end) {
        continue;
      }
      const std::uintptr_t page = address - address % page_bytes;
      // Recorded first, so that a reader of the zeros sees it.
      std::uintptr_t lost_from = entry.lost_from.load();
      while (page < lost_from &&
             !entry.lost_from.compare_exchange_weak(lost_from, page)) {
      }
      return map_zeros(page, end - page);
    }
  }
  return false;
}

// Calls `previous`. The signals in its mask are already blocked.
void forward_to(struct sigaction* previous, int signal, siginfo_t* info,
                void* context) {
  if ((previous->sa_flags & SA_SIGINFO) == 0) {
    const bool is_sent = info->si_code <= 0 || info->si_code == SI_USER;
    if (previous->sa_handler == SIG_IGN && is_sent) return;
    if (previous->sa_handler == SIG_DFL || previous->sa_handler == SIG_IGN) {
      // A fault cannot be ignored. It repeats when this returns, as does a sent signal.
      struct sigaction standard = {};
      standard.sa_handler = SIG_DFL;
      ::sigaction(signal, &standard, nullptr);
      ::raise(signal);
      return;
    }
  }
  const struct sigaction called = *previous;
  if ((static_cast<unsigned>(called.sa_flags) & SA_RESETHAND) != 0) *previous = {};
  if ((called.sa_flags & SA_SIGINFO) != 0) {
    called.sa_sigaction(signal, info, context);
  } else {
    called.sa_handler(signal);
  }
}

// The handler may be installed several times, because other handlers replace and call
// it. Each level has its own function and predecessor, so that handlers never call each
// other in a cycle.
constexpr std::size_t kMaxLevels = 8;
std::array<struct sigaction, kMaxLevels> predecessors;
std::atomic<std::size_t> n_levels{0};

template <std::size_t kLevel>
void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool is_replaced =
      info->si_code == BUS_ADRERR &&
      replace_lost(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (!is_replaced) forward_to(&predecessors[kLevel], signal, info, context);
  errno = saved_errno;
}

using Handler = void (*)(int, siginfo_t*, void*);

constexpr auto kHandlers = []<std::size_t... kLevels>(std::index_sequence<kLevels...>) {
  return std::array<Handler, kMaxLevels>{&on_bus_error<kLevels>...};
}(std::make_index_sequence<kMaxLevels>());

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 &&
         std::ranges::find(kHandlers, action.sa_sigaction) != kHandlers.end();
}

bool same_action(const struct sigaction& a, const struct sigaction& b) noexcept {
  if (a.sa_flags != b.sa_flags) return false;
  return (a.sa_flags & SA_SIGINFO) != 0 ? a.sa_sigaction == b.sa_sigaction
                                        : a.sa_handler == b.sa_handler;
}

void install(std::size_t level, const struct sigaction& predecessor) noexcept {
  predecessors[level] = predecessor;
  struct sigaction action = {};
  action.sa_sigaction = kHandlers[level];
  action.sa_mask = predecessor.sa_mask;
  action.sa_flags =
      SA_SIGINFO | SA_ONSTACK | (predecessor.sa_flags & (SA_NODEFER | SA_RESTART));
  ::sigaction(SIGBUS, &action, nullptr);
}

// The id of the process that holds the InstallLock, or 0. Not a mutex, because a fork
// would copy a locked one to the child.
std::atomic<int> installing_process{0};

class InstallLock {
 public:
  InstallLock() noexcept {
    const int mine = process_id();
    int holder = 0;
    while (!installing_process.compare_exchange_weak(holder, mine)) {
      // A fork does not copy the thread that holds the lock of the parent.
      if (holder != mine) continue;
      holder = 0;
      std::this_thread::yield();
    }
  }
  ~InstallLock() { installing_process.store(0); }
  InstallLock(const InstallLock&) = delete;
  InstallLock& operator=(const InstallLock&) = delete;
};

bool read_environment() {
  const char* value = std::getenv("FASTREC_SIGBUS_GUARD");
  if (value == nullptr || std::string_view(value) == "1") return true;
  if (std::string_view(value) == "0") return false;
  throw std::invalid_argument("FASTREC_SIGBUS_GUARD must be 0 or 1, got '" +
                              std::string(value) + "'");
}

// A lost page kills the process if SIGBUS is blocked in the reading thread, and threads
// inherit the mask of the thread that starts them.
void unblock() noexcept {
  sigset_t bus_error;
  sigemptyset(&bus_error);
  sigaddset(&bus_error, SIGBUS);
  ::pthread_sigmask(SIG_UNBLOCK, &bus_error, nullptr);
}

}  // namespace

bool is_guard_enabled() {
  static const bool is_enabled = read_environment();
  return is_enabled;
}

void install_guard() {
  if (!is_guard_enabled()) return;
  unblock();
  struct sigaction now;
  if (::sigaction(SIGBUS, nullptr, &now) != 0 || is_ours(now)) return;
  const InstallLock lock;
  if (::sigaction(SIGBUS, nullptr, &now) != 0 || is_ours(now)) return;
  page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t n = n_levels.load(std::memory_order_relaxed);
  for (std::size_t level = 0; level < n; ++level) {
    if (same_action(predecessors[level], now)) return install(level, now);
  }
  if (n == kMaxLevels) return;
  install(n, now);
  n_levels.store(n + 1, std::memory_order_relaxed);
}

GuardedRange::GuardedRange(Bytes mapped) {
  if (mapped.empty() || !is_guard_enabled()) return;
  install_guard();
  entry_ = take_entry();
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped.data());
  entry_->set(begin, begin + mapped.size());
}

GuardedRange::~GuardedRange() {
  if (entry_ == nullptr) return;
  entry_->set(0, 0);
  entry_->is_taken.store(false, std::memory_order_release);
}

std::size_t GuardedRange::n_valid() const noexcept {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  if (entry_ == nullptr) return kAll;
  // Orders earlier reads of the mapping before the load of lost_from.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"  // TSan does not support fences
#endif
  std::atomic_thread_fence(std::memory_order_acquire);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
  const std::uintptr_t lost_from = entry_->lost_from.load(std::memory_order_relaxed);
  if (lost_from == std::numeric_limits<std::uintptr_t>::max()) return kAll;
  return lost_from - entry_->begin.load(std::memory_order_relaxed);
}

}  // namespace fastrec
