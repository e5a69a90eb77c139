// KeyWatch: the first records of a data set -> columns whose key no record had.
//
// A column that may be missing hides a misspelt key: every row is empty or the default.
// The watch looks for the keys of such columns in the first records and then closes.
// Threads share one watch. Once it is closed, a batch pays one atomic load for it.
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
  std::size_t schema = 0;  // number of the schema
  std::size_t column = 0;
  std::uint64_t n_records = 0;
  // Keys of the first record: its features, or its feature lists if the column reads
  // one of these.
  std::vector<std::string> names;
};

class KeyWatch {
 public:
  // Records of each schema that are examined.
  static constexpr std::uint64_t kRecords = 1000;
  // An epoch of fewer records shows nothing: an optional feature may well be in none.
  static constexpr std::uint64_t kMinRecords = 10;

  // Inferred schemas are not watched: their keys come from the records.
  explicit KeyWatch(std::span<const std::shared_ptr<const Schema>> schemas);

  // Whether any schema needs more records.
  bool is_open() const noexcept { return n_open_.load(std::memory_order_relaxed) != 0; }

  // Whether take() may return columns, now or later.
  bool is_pending() const noexcept {
    return n_pending_.load(std::memory_order_relaxed) != 0;
  }

  // Examines a record that was decoded by `schema`.
  void add(std::size_t schema, Bytes record);

  // Absent columns of the schemas that have seen kRecords, each once. Threads decode
  // out of order, so the watch waits until kRecords were delivered. At the end of an
  // epoch of `epoch_records` it ends in any case.
  std::vector<AbsentColumn> take(std::uint64_t n_delivered,
                                 std::optional<std::uint64_t> epoch_records);

 private:
  struct Watched {
    explicit Watched(std::shared_ptr<const Schema> of);
    bool is_absent(std::size_t column) const;

    std::shared_ptr<const Schema> schema;
    ColumnKeys keys, list_keys;
    std::vector<bool> found, list_found;  // by number of key
    std::size_t n_absent = 0;             // keys that are not found yet
    std::uint64_t n_records = 0;
    std::vector<std::string> names, list_names;  // of the first record
    bool is_open = true;                         // more records are examined
    bool is_reported = false;                    // take() returned its columns
  };

  void close(Watched* watched);

  std::mutex mutex_;                               // guards watched_
  std::vector<std::unique_ptr<Watched>> watched_;  // by schema; null if not watched
  std::atomic<std::size_t> n_open_{0}, n_pending_{0};
};

}  // namespace fastrec
