// FeatureKind: the kind of list in a tensorflow.Feature.
//
// Source: tensorflow/core/example/feature.proto.
#pragma once

#include <cstdint>

#include "base/names.h"

namespace fastrec {

// The values are the field numbers of the message.
enum class FeatureKind : std::uint8_t { kNone = 0, kBytes = 1, kFloat = 2, kInt64 = 3 };

template <>
struct Names<FeatureKind> {
  static constexpr const char* kAll[] = {"", "bytes", "float", "int64"};
};

// For error messages: "no" for kNone.
constexpr const char* kind_name(FeatureKind kind) noexcept {
  return kind == FeatureKind::kNone ? "no" : name_of(kind);
}

}  // namespace fastrec
