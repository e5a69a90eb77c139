#include "wire/key_table.h"

namespace fastrec {

std::uint32_t KeyTable::insert(const std::string& key) {
  const std::uint32_t found = find(as_bytes(key));
  if (found != kNone) return found;
  keys_.push_back(key);
  if (kSlotsPerKey * keys_.size() > slots_.size()) {
    slots_.assign(2 * slots_.size(), kNone);
    --shift_;
    for (std::uint32_t number = 0; number + 1 < keys_.size(); ++number) place(number);
  }
  place(static_cast<std::uint32_t>(keys_.size() - 1));
  return static_cast<std::uint32_t>(keys_.size() - 1);
}

void KeyTable::place(std::uint32_t number) {
  std::size_t slot = slot_of(hash(as_bytes(keys_[number])));
  while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = number;
}

}  // namespace fastrec
