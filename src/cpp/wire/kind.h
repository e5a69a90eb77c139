// FeatureKind: which of the three lists of tensorflow.Feature a feature holds.
//
// Source: tensorflow/core/example/feature.proto.
#pragma once

#include <cstdint>

namespace fastrec {

// Numbered as the fields of the message are.
enum class FeatureKind : std::uint8_t { kNone = 0, kBytes = 1, kFloat = 2, kInt64 = 3 };

// "int64", "float" or "bytes"; "no" for kNone.
constexpr const char* kind_name(FeatureKind kind) noexcept {
  constexpr const char* kNames[] = {"no", "bytes", "float", "int64"};
  return kNames[static_cast<unsigned>(kind)];
}

}  // namespace fastrec
