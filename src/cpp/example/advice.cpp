#include "example/advice.h"

#include <unordered_set>

#include "example/walk.h"

namespace fastrec {

std::vector<std::string> names_in(Bytes record, Section section) {
  constexpr std::size_t kMaxNames = 1000;
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  JoinedMessages joined;
  const auto add = [&](Bytes key) {
    if (names.size() == kMaxNames) return;
    std::string name(as_text(key));
    if (seen.insert(name).second) names.push_back(std::move(name));
  };
  // Names before a fault count, too.
  if (section != Section::kLists) {
    (void)walk_features(record, &joined, [&](Bytes key, Bytes) { add(key); });
  } else {
    (void)walk_maps<2>(record, &joined, [&](std::uint32_t field, Bytes key, Bytes) {
      if (field == 2) add(key);
    });
  }
  return names;
}

}  // namespace fastrec
