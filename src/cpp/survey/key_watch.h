// KeyWatch: the first records of a dataset -> columns whose key is in none of them.
//
// A misspelt key of an optional column is silent: every row is empty or the default.
// The watch looks for the keys of such columns in the first records and then closes.
// All threads share one watch. A closed watch costs one atomic load per batch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "batch/schema.h"
#include "decode/decode.h"

namespace fastrec {

// A column whose key is in none of `n_records` records.
struct AbsentColumn {
  std::size_t schema = 0;  // index of the schema
  std::size_t column = 0;
  std::uint64_t n_records = 0;
  // The keys of the features (or feature lists, for such a column) of the first record.
  std::vector<std::string> names;
};

class KeyWatch {
 public:
  // Records to examine for each schema.
  static constexpr std::uint64_t kRecords = 1000;
  // A shorter epoch proves nothing: no record may happen to have an optional feature.
  static constexpr std::uint64_t kMinRecords = 10;

  // Does not watch inferred schemas, whose keys come from records.
  explicit KeyWatch(std::span<const std::shared_ptr<const Schema>> schemas);

  // Whether any schema needs more records.
  bool is_open() const noexcept { return n_open_.load(std::memory_order_relaxed) != 0; }

  // Whether take_absent() may return columns, now or later.
  bool is_pending() const noexcept {
    return n_pending_.load(std::memory_order_relaxed) != 0;
  }

  // Examines a record that was decoded by `schema`.
  void add(std::size_t schema, Bytes record);

  // Returns the absent columns of schemas that have seen kRecords, each once. Threads
  // decode out of order, so it also waits until kRecords were delivered. The end of an
  // epoch, where `epoch_records` is set, closes the watch in any case.
  std::vector<AbsentColumn> take_absent(std::uint64_t n_delivered,
                                        std::optional<std::uint64_t> epoch_records);

 private:
  struct WatchedKeys {
    WatchedKeys(const Schema& schema, bool of_lists)
        : keys(schema, of_lists), found(keys.table().size(), true) {}

    ColumnKeys keys;
    std::vector<bool> found;         // by key number
    std::vector<std::string> names;  // of the first record
  };
  struct Watched {
    explicit Watched(std::shared_ptr<const Schema> of);

    std::shared_ptr<const Schema> schema;
    WatchedKeys keys[2];       // of features, and of feature lists
    std::size_t n_absent = 0;  // keys that are not found yet
    std::uint64_t n_records = 0;
    bool is_open = true;       // more records are examined
    bool is_reported = false;  // take_absent() returned its columns
  };

  void close(Watched* watched);

  std::mutex mutex_;                               // guards watched_
  std::vector<std::unique_ptr<Watched>> watched_;  // by schema; null if not watched
  std::atomic<std::size_t> n_open_{0}, n_pending_{0};
};

}  // namespace fastrec
