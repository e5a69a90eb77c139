#include "example/fastpath.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "example/plain.h"
#include "example/varint.h"

namespace fastrec {
namespace {

// An order that was wrong for this many records is not looked for in the next ones.
constexpr std::size_t kMostDisorderly = 4;
constexpr std::size_t kUnpredicted = 1024;

constexpr std::uint64_t kEveryByte = 0x0101010101010101;

bool is_number(const ColumnSpec& spec) {
  return spec.layout == Layout::kDense && spec.n_values == 1 &&
         (spec.dtype == DType::kInt64 || spec.dtype == DType::kFloat32);
}

// The entry of one number, up to a payload of no bytes.
std::vector<std::uint8_t> empty_entry(Bytes key, FeatureKind kind) {
  const auto n = static_cast<std::uint8_t>(key.size());
  const auto kind_tag = static_cast<std::uint8_t>(static_cast<unsigned>(kind) << 3 | 2);
  std::vector<std::uint8_t> entry{kTagOne, static_cast<std::uint8_t>(n + 8), kTagOne,
                                  n};
  entry.insert(entry.end(), key.begin(), key.end());
  entry.insert(entry.end(), {kTagTwo, 4, kind_tag, 2, kTagOne, 0});
  return entry;
}

}  // namespace

bool FastPath::can_read(const Schema& schema) {
  std::vector<std::string> keys;
  for (const ColumnSpec& spec : schema.columns) {
    const bool is_stacked_string = spec.n_slots > 1 && spec.dtype == DType::kBytes;
    if (spec.section != Section::kFeatures || spec.layout == Layout::kRecord ||
        is_stacked_string) {
      return false;
    }
    keys.push_back(spec.key);
  }
  std::sort(keys.begin(), keys.end());
  return !keys.empty() && std::adjacent_find(keys.begin(), keys.end()) == keys.end();
}

FastPath::FastPath(const Schema& schema) {
  buckets_.assign(std::bit_ceil(8 * schema.columns.size()), kNone);
  bucket_shift_ = 64 - std::countr_zero(buckets_.size());
  for (std::size_t column = 0; column < schema.columns.size(); ++column) {
    const ColumnSpec& spec = schema.columns[column];
    Slot& slot = slots_.emplace_back();
    slot.key = as_bytes(spec.key);
    slot.next = column + 1 < schema.columns.size() ? column + 1 : 0;
    const std::string padded = std::string(sizeof(std::uint64_t), '\0') + spec.key;
    std::size_t bucket = bucket_of(as_bytes(padded).subspan(sizeof(std::uint64_t)));
    while (buckets_[bucket] != kNone) bucket = (bucket + 1) & (buckets_.size() - 1);
    buckets_[bucket] = column;

    constexpr std::size_t kMostPayloadBytes = 8;  // of what decode_number() reads
    if (!is_number(spec) || spec.key.size() > kMostKeyBytes) continue;
    const std::vector<std::uint8_t> header = empty_entry(slot.key, spec.kind);
    slot.form = spec.kind == FeatureKind::kInt64 ? Form::kInt64 : Form::kFloat32;
    slot.header_bytes = static_cast<std::uint8_t>(header.size());
    slot.n_words = static_cast<std::uint8_t>((header.size() + 7) / 8);
    slot.most_payload = kMostPayloadBytes;
    std::array<std::uint8_t, 8 * kWords> bytes{}, lengths{}, known{};
    std::copy(header.begin(), header.end(), bytes.begin());
    std::fill_n(known.begin(), header.size(), std::uint8_t{0xff});
    for (const std::size_t at :
         {std::size_t{1}, header.size() - 5, header.size() - 3, header.size() - 1}) {
      lengths[at] = 0xff;
    }
    for (std::size_t w = 0; w < kWords; ++w) {
      slot.words[w] = {load_le<std::uint64_t>(&bytes[8 * w]),
                       load_le<std::uint64_t>(&lengths[8 * w]),
                       load_le<std::uint64_t>(&known[8 * w])};
    }
  }
}

// A key is known by its length and its last 8 bytes, nearly always. `key` has as many
// readable bytes before its end.
inline std::size_t FastPath::bucket_of(Bytes key) const noexcept {
  const std::size_t n = std::min(key.size(), sizeof(std::uint64_t));
  std::uint64_t last =
      load_le<std::uint64_t>(key.data() + key.size() - sizeof(std::uint64_t));
  last = n == 0 ? 0 : last >> (64 - 8 * n);
  // Keys mostly differ in their last bytes, which are the highest here.
  last ^= (last >> 32) ^ key.size();
  return static_cast<std::size_t>((last * 0x9e3779b97f4a7c15) >> bucket_shift_);
}

// The column whose key the entry at `p` seems to have, or kNone.
inline std::size_t FastPath::likely_column(const std::uint8_t* p) const noexcept {
  const std::size_t n = p[3];
  return n <= kMostKeyBytes ? buckets_[bucket_of({p + 4, n})] : kNone;
}

std::size_t FastPath::find(Bytes key) const noexcept {
  for (std::size_t bucket = bucket_of(key); buckets_[bucket] != kNone;
       bucket = (bucket + 1) & (buckets_.size() - 1)) {
    const Bytes own = slots_[buckets_[bucket]].key;
    if (own.size() == key.size() && same_bytes(own.data(), key.data(), key.size())) {
      return buckets_[bucket];
    }
  }
  return kNone;
}

// Where the payload of the entry at `p` begins, if that is the entry of `slot`;
// otherwise nullptr.
inline const std::uint8_t* FastPath::match(const Slot& slot,
                                           const std::uint8_t* p) const noexcept {
  const std::uint8_t n_payload = p[slot.header_bytes - 1];
  const std::uint64_t added = n_payload * kEveryByte;
  const auto differs = [&](std::size_t w) {
    const Word& word = slot.words[w];
    return (load_le<std::uint64_t>(p + 8 * w) ^
            (word.header + (added & word.lengths))) &
           word.known;
  };
  // Four words hold the header of most keys: no loop, no branch.
  std::uint64_t differ = differs(0) | differs(1) | differs(2) | differs(3);
  for (std::size_t w = kFewWords; w < slot.n_words; ++w) differ |= differs(w);
  const bool is_match = differ == 0 && n_payload <= slot.most_payload;
  return is_match ? p + slot.header_bytes : nullptr;
}

// Decodes the entry at `p` if it holds one number of `slot`. Returns where it ends, or
// nullptr.
inline const std::uint8_t* FastPath::decode_number(const Slot& slot, std::size_t column,
                                                   const std::uint8_t* p,
                                                   const std::uint8_t* end,
                                                   std::size_t row,
                                                   BatchBuilder* batch) const noexcept {
  const std::uint8_t* payload = match(slot, p);
  if (payload == nullptr) return nullptr;
  const std::size_t n = payload[-1];
  if (payload > end || n > static_cast<std::size_t>(end - payload)) return nullptr;
  std::uint8_t* target = batch->row(column, row);
  if (slot.form == Form::kFloat32) {
    if (n != sizeof(float)) return nullptr;
    const auto bits = load_le<std::uint32_t>(payload);
    std::memcpy(target, &bits, sizeof bits);
    return payload + n;
  }
  if (n == 0) return nullptr;
  const std::uint64_t word = load_le<std::uint64_t>(payload);
  const std::uint64_t kept = ~std::uint64_t{0} >> (64 - 8 * n);
  // One value ends at its last byte, and nowhere before.
  if ((word & kept & kTopBits) != ((kept >> 8) & kTopBits)) return nullptr;
  std::uint64_t x = word & kept & 0x7f7f7f7f7f7f7f7f;
  x = (x & 0x007f007f007f007f) | ((x & 0x7f007f007f007f00) >> 1);
  x = (x & 0x00003fff00003fff) | ((x & 0x3fff00003fff0000) >> 2);
  x = (x & 0x000000000fffffff) | ((x & 0x0fffffff00000000) >> 4);
  std::memcpy(target, &x, sizeof x);
  return payload + n;
}

bool FastPath::decode(Bytes record, std::size_t row, FeatureDecoder* decoder,
                      BatchBuilder* batch) {
  Bytes features;
  if (!find_plain_field(record, kTagOne, &features)) return false;
  ++n_records_;
  const bool is_predicted = n_unpredicted_ == 0;
  const std::uint8_t* p = features.data();
  const std::uint8_t* const end = p + features.size();
  std::size_t* guess = &first_;  // what comes next
  std::size_t n_found = 0, n_entries = 0, n_misses = 0;
  std::size_t n_others =
      0;  // entries nobody asked for since the last that somebody did
  while (p != end) {
    ++n_entries;
    std::size_t column = is_predicted ? *guess : likely_column(p);
    if (column != kNone && slots_[column].form != Form::kOther &&
        (!is_predicted || slots_[column].n_others_before == n_others)) {
      Slot& slot = slots_[column];
      if (const std::uint8_t* after = decode_number(slot, column, p, end, row, batch);
          after != nullptr && slot.last_record != n_records_) {
        slot.last_record = n_records_;
        guess = &slot.next;
        n_others = 0;
        ++n_found;
        p = after;
        continue;
      }
    }
    Bytes entry, key, feature;
    p = read_plain_field(p, end, kTagOne, &entry);
    if (p == nullptr || !find_plain_entry(entry, &key, &feature)) return false;
    column = find(key);
    if (column == kNone) {
      ++n_others;
      continue;
    }
    Slot& slot = slots_[column];
    if (slot.last_record == n_records_) return false;  // twice
    slot.last_record = n_records_;
    if (*guess != column || slot.n_others_before != n_others) {
      ++n_misses;
      if (is_predicted) {
        *guess = column;
        slot.n_others_before = n_others;
      }
    }
    guess = &slot.next;
    n_others = 0;
    ++n_found;
    if (decoder->decode(column, feature, row, batch)) return false;
  }
  learn(n_entries, n_misses);
  if (n_found == slots_.size()) return true;
  for (std::size_t column = 0; column < slots_.size(); ++column) {
    if (slots_[column].last_record != n_records_ &&
        decoder->fill_missing(column, row, batch)) {
      return false;
    }
  }
  return true;
}

void FastPath::learn(std::size_t n_entries, std::size_t n_misses) noexcept {
  if (n_unpredicted_ > 0) {
    --n_unpredicted_;
    return;
  }
  n_disorderly_ = 4 * n_misses > n_entries ? n_disorderly_ + 1 : 0;
  if (n_disorderly_ < kMostDisorderly) return;
  n_disorderly_ = 0;
  n_unpredicted_ = kUnpredicted;
}

}  // namespace fastrec
