#include "batch/schema.h"

namespace fastrec {

const char* kind_name(FeatureKind kind) noexcept {
  switch (kind) {
    case FeatureKind::kBytes:
      return "bytes";
    case FeatureKind::kFloat:
      return "float";
    case FeatureKind::kInt64:
      return "int64";
    case FeatureKind::kNone:
      break;
  }
  return "no";
}

}  // namespace fastrec
