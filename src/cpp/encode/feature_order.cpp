#include "encode/feature_order.h"

namespace fastrec {

FeatureOrder::Place FeatureOrder::place(Bytes key, FeatureKind kind) {
  const std::lock_guard lock(mutex_);
  if (next_ >= keys_.size()) next_ = 0;
  std::size_t position = next_;
  if (keys_.empty() || as_text(key) != keys_[position]) {
    std::string text(as_text(key));
    const auto [found, is_new] = positions_.try_emplace(std::move(text), keys_.size());
    position = found->second;
    if (is_new) {
      keys_.push_back(found->first);
      kinds_.push_back(kind);
    }
  }
  next_ = position + 1;
  FeatureKind& known = kinds_[position];
  if (known == FeatureKind::kNone) known = kind;
  return {position, known};
}

}  // namespace fastrec
