// FeatureOrder: the order and kinds of the features that were written so far.
//
// Records with one order of features are the fastest to read, and a feature must have
// the same kind in every record to be readable at all.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "batch/schema.h"

namespace fastrec {

class FeatureOrder {
 public:
  struct Place {
    std::size_t position = 0;               // in the order of first occurrence
    FeatureKind kind = FeatureKind::kNone;  // of the first occurrence with values
  };

  // Returns the place of a feature; a new one is appended. kNone means an unknown kind,
  // which the first call with another kind sets.
  Place place(Bytes key, FeatureKind kind);

 private:
  std::mutex mutex_;
  std::vector<std::string> keys_;
  std::vector<FeatureKind> kinds_;
  std::unordered_map<std::string, std::size_t> positions_;
  std::size_t next_ = 0;  // the expected position: most rows keep the order
};

}  // namespace fastrec
