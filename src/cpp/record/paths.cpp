#include "record/paths.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>

#include "base/in_threads.h"

namespace fastrec {
namespace {

// Calls `of_file(i)` for each of `n` files. Throws the first exception in their order.
template <typename OfFile>
void for_each_file(std::size_t n, std::size_t n_threads, const OfFile& of_file) {
  constexpr std::size_t kAtOnce = 64;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t n_good = n;  // the files before the first that failed
  std::exception_ptr failure;
  const auto work = [&](std::size_t) {
    for (std::size_t begin; (begin = next.fetch_add(kAtOnce)) < n;) {
      for (std::size_t i = begin; i < std::min(n, begin + kAtOnce); ++i) {
        try {
          of_file(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (i < n_good) {
            n_good = i;
            failure = std::current_exception();
          }
          return;
        }
      }
    }
  };
  in_threads(std::max<std::size_t>(1, std::min(n / kAtOnce, n_threads)), work);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

std::vector<std::string> split_paths(std::string_view joined) {
  std::vector<std::string> paths;
  if (joined.empty()) return paths;
  paths.reserve(static_cast<std::size_t>(std::ranges::count(joined, '\0')) + 1);
  for (std::size_t begin = 0; begin <= joined.size();) {
    const std::size_t end = std::min(joined.find('\0', begin), joined.size());
    paths.emplace_back(joined.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

Content recognize_file(const std::string& path) {
  std::uint8_t beginning[kRecognizeBytes];
  const std::size_t n = File(path).read_at(0, beginning);
  return recognize({beginning, n});
}

std::vector<FileIdentity> versions_of(const std::vector<std::string>& paths,
                                      std::size_t n_threads) {
  std::vector<FileIdentity> versions(paths.size());
  for_each_file(paths.size(), n_threads, [&](std::size_t i) {
    std::optional<FileState> state = state_at(paths[i]);
    if (!state) state = File(paths[i]).state();  // throws the reason
    versions[i] = state->identity;
  });
  return versions;
}

std::vector<std::uint8_t> may_be_compressed(const std::vector<std::string>& paths,
                                            std::size_t n_threads) {
  std::vector<std::uint8_t> flags(paths.size());
  for_each_file(paths.size(), n_threads, [&](std::size_t i) {
    const Content content = recognize_file(paths[i]);
    flags[i] = content == Content::kGzip || content == Content::kZlib;
  });
  return flags;
}

}  // namespace fastrec
