// FeatureOrder: what the rows written so far say of the next: which features come in
// which order, and of which kind each is.
//
// Rows whose features come in one order are read fastest, and a file in which a feature
// is now a list of integers and now one of floats cannot be read at all.
//
// Any thread may use it.
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
    std::size_t position = 0;  // among all features, in the order they were first met
    FeatureKind kind = FeatureKind::kNone;  // that it was first met with
  };

  // The place of a feature, which is the last one if it is new. A `kind` of kNone says
  // nothing: then the feature has none until it is met with one.
  Place place(Bytes key, FeatureKind kind);

 private:
  std::mutex mutex_;
  std::vector<std::string> keys_;
  std::vector<FeatureKind> kinds_;
  std::unordered_map<std::string, std::size_t> positions_;
  std::size_t next_ = 0;  // most rows have the features in order
};

}  // namespace fastrec
