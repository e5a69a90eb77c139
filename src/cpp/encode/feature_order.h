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
#include <vector>

#include "base/bytes.h"
#include "wire/key_table.h"
#include "wire/kind.h"

namespace fastrec {

class FeatureOrder {
 public:
  struct Place {
    std::size_t position = 0;               // in the order of first occurrence
    FeatureKind kind = FeatureKind::kNone;  // of the first occurrence with values
  };

  // Returns the place of a feature; a new one is appended. kNone means an unknown kind,
  // which the first call with another kind sets.
  Place place(Bytes key, FeatureKind kind) {
    const std::lock_guard lock(mutex_);
    std::uint32_t position = keys_.find(key, next_);
    if (position == KeyTable::kNone) {
      position = keys_.insert(std::string(as_text(key)));
      kinds_.push_back(kind);
    }
    next_ = position + 1 < keys_.size() ? position + 1 : 0;
    FeatureKind& known = kinds_[position];
    if (known == FeatureKind::kNone) known = kind;
    return {position, known};
  }

 private:
  std::mutex mutex_;
  KeyTable keys_;
  std::vector<FeatureKind> kinds_;
  std::uint32_t next_ = 0;  // the expected position: most rows keep the order
};

}  // namespace fastrec
