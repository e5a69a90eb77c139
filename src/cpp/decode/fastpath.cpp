#include "decode/fastpath.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/random.h"
#include "base/word.h"
#include "decode/values.h"
#include "wire/plain.h"
#include "wire/varint.h"

namespace fastrec {
namespace {

// An order that was wrong for this many records is not looked for in the next ones.
constexpr std::size_t kMostDisorderly = 4;
constexpr std::size_t kUnpredicted = 1024;

// Where this many records in a row could not be proven, the next ones are not tried.
constexpr std::size_t kMostFailures = 8;
constexpr std::size_t kDeclined = 1024;

// Buckets that are probed for a key on average. Keys that end alike share a run of
// buckets, and searching a long run takes longer than hashing whole keys.
constexpr std::size_t kMaxProbes = 64;

constexpr std::size_t kShortKeyBytes = 64;    // whose hash is looked up at once
constexpr std::size_t kMostPayloadBytes = 8;  // of a number whose header is known
constexpr std::uint64_t kMostHashed = 2048;   // keys, in the search for a hash
constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

bool is_number(const ColumnSpec& spec) {
  return spec.layout == Layout::kDense && spec.n_values == 1 &&
         spec.kind != FeatureKind::kBytes;
}

// The entry of a number, up to a payload of no bytes.
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
  const auto n_columns = static_cast<std::uint32_t>(schema.columns.size());
  // Enough for keys that nobody asked for to meet none of them, nearly always.
  buckets_.assign(
      std::bit_ceil(std::max(std::size_t{1024}, std::size_t{8} * n_columns)), kNone);
  bucket_shift_ = 64 - std::countr_zero(buckets_.size());
  for (std::uint32_t column = 0; column < n_columns; ++column) {
    const ColumnSpec& spec = schema.columns[column];
    keys_.push_back(spec.key);

    Slot& slot = slots_.emplace_back();
    Template& more = more_.emplace_back();
    slot.next = column + 1 < n_columns ? column + 1 : 0;
    const std::vector<std::uint8_t> header = empty_entry(as_bytes(spec.key), spec.kind);
    const std::size_t n = header.size();
    if (!is_number(spec) || n > 2 * kTemplateBytes) continue;
    slot.form = spec.dtype == DType::kInt64     ? Form::kInt64
                : spec.dtype == DType::kFloat32 ? Form::kFloat32
                                                : Form::kConverted;
    slot.kind = spec.kind;
    slot.dtype = spec.dtype;
    slot.header_bytes = static_cast<std::uint8_t>(n);
    slot.is_long = n > kTemplateBytes;
    for (std::size_t at = 0; at < n; ++at) {
      Template& part = at < kTemplateBytes ? slot.entry : more;
      const std::size_t place = at % kTemplateBytes;
      const bool is_length = at == 1 || at == n - 5 || at == n - 3 || at == n - 1;
      part.header[place] = header[at];
      part.known[place] = 0xff;
      part.lengths[place] = is_length ? 0xff : 0;
    }
  }
  // Keys that end alike always meet, and of very many some do.
  const std::uint64_t n_tries = std::max<std::uint64_t>(1, kMostHashed / n_columns);
  for (std::uint64_t i = 0; i < n_tries && !fill_buckets(mix64(i) | 1); ++i) continue;
}

// A key is known by its length and its last 8 bytes, nearly always. `key` has as many
// readable bytes before its end.
inline std::size_t FastPath::bucket_of(Bytes key) const noexcept {
  auto last = load_le<std::uint64_t>(key.data() + key.size() - kWordBytes);
  // Without what is before a short key: in two steps, as a shift by 64 is none.
  const auto half_gap =
      static_cast<int>(4 * (kWordBytes - std::min(key.size(), kWordBytes)));
  last = (last >> half_gap >> half_gap) ^ key.size();
  return static_cast<std::size_t>(((last ^ last >> 32) * multiplier_) >> bucket_shift_);
}

// Fills the buckets. Returns whether every column is in its own.
bool FastPath::fill_buckets(std::uint64_t multiplier) {
  multiplier_ = multiplier;
  std::fill(buckets_.begin(), buckets_.end(), kNone);
  std::size_t n_probes = 0;
  for (std::uint32_t column = 0; column < keys_.size(); ++column) {
    const std::string padded = std::string(kWordBytes, '\0') + keys_[column];
    std::size_t bucket = bucket_of(as_bytes(padded).subspan(kWordBytes));
    for (; buckets_[bucket] != kNone; bucket = (bucket + 1) & (buckets_.size() - 1)) {
      ++n_probes;
    }
    buckets_[bucket] = column;
    is_usable_ = n_probes <= kMaxProbes * keys_.size();
    if (!is_usable_) return false;
  }
  return n_probes == 0;
}

// The column whose key `entry` seems to have, or kNone.
inline std::uint32_t FastPath::likely_column(const std::uint8_t* entry) const noexcept {
  const std::size_t n = entry[3];
  return n < kShortKeyBytes ? buckets_[bucket_of({entry + 4, n})] : kNone;
}

// Steps over the next entry, which has no likely column, if its key and value are all
// of it, in lengths of one byte. Then the key is of no column.
inline bool FastPath::skip_other(Progress* progress) noexcept {
  const std::uint8_t* const p = progress->p;
  const std::size_t n_entry = p[1], n_key = p[3];
  if (n_key >= kShortKeyBytes || n_entry < n_key + 4) return false;
  const std::size_t n_value = n_entry - n_key - 4;
  const std::uint8_t* const value = p + 4 + n_key;
  if (p[0] != kTagOne || p[2] != kTagOne || value[0] != kTagTwo || n_entry >= 0x80 ||
      value[1] != n_value || progress->end - p < std::ptrdiff_t(2 + n_entry)) {
    return false;
  }
  progress->p += 2 + n_entry;
  ++progress->n_others;
  ++progress->n_others_in_all;
  return true;
}

inline std::uint32_t FastPath::find(Bytes key) const noexcept {
  for (std::size_t bucket = bucket_of(key); buckets_[bucket] != kNone;
       bucket = (bucket + 1) & (buckets_.size() - 1)) {
    const std::string& own = keys_[buckets_[bucket]];
    if (own.size() == key.size() &&
        same_bytes(as_bytes(own).data(), key.data(), key.size())) {
      return buckets_[bucket];
    }
  }
  return kNone;
}

// Where the payload of the entry at `p` begins, if that is an entry of `column`;
// otherwise nullptr.
inline const std::uint8_t* FastPath::find_payload(
    std::uint32_t column, const std::uint8_t* p) const noexcept {
  const Slot& slot = slots_[column];
  const std::uint8_t n_payload = p[slot.header_bytes - 1];
  const Word added = repeated(n_payload);
  const auto differs = [added](const Template& entry, const std::uint8_t* bytes) {
    Word differ{};
    for (std::size_t at = 0; at < kTemplateBytes; at += sizeof(Word)) {
      const Word expected =
          load_word(&entry.header[at]) + (added & load_word(&entry.lengths[at]));
      differ |= (load_word(bytes + at) ^ expected) & load_word(&entry.known[at]);
    }
    return differ;
  };
  Word differ = differs(slot.entry, p);
  if (slot.is_long) differ |= differs(more_[column], p + kTemplateBytes);
  const bool is_proven = is_zero(differ) && n_payload <= kMostPayloadBytes;
  return is_proven ? p + slot.header_bytes : nullptr;
}

// Decodes the entry that comes next if it is one of `column`, of one number. Returns
// where it ends, or nullptr.
inline const std::uint8_t* FastPath::decode_number(std::uint32_t column,
                                                   const Progress& progress,
                                                   BatchBuilder* batch) const noexcept {
  const std::uint8_t* payload = find_payload(column, progress.p);
  if (payload == nullptr) return nullptr;
  const std::size_t n = payload[-1];
  // This is payload + n, as has been proven, but the CPU knows it sooner.
  const std::uint8_t* const after = progress.p + 2 + progress.p[1];
  if (after > progress.end) return nullptr;
  std::uint8_t* target = batch->row(column, progress.row);
  const auto word = load_le<std::uint64_t>(payload);
  const Slot& slot = slots_[column];
  if (slot.form == Form::kFloat32) {
    if (n != sizeof(float)) return nullptr;
    const auto bits = static_cast<std::uint32_t>(word);
    std::memcpy(target, &bits, sizeof bits);
    return after;
  }
  if (slot.form == Form::kConverted) {
    const Bytes run(payload, n);
    return decode_plain_numbers(run, slot.kind, 1, slot.dtype, target) ? after
                                                                       : nullptr;
  }
  std::uint64_t value;
  if (n == 0 || !read_varint_of(word, n, &value)) return nullptr;
  std::memcpy(target, &value, sizeof value);
  return after;
}

// Notes that the next entry is that of `column`. False if there was one already.
inline bool FastPath::note(std::uint32_t column, Progress* progress) noexcept {
  Slot& slot = slots_[column];
  if (slot.last_record == n_records_) return false;
  slot.last_record = n_records_;
  progress->guess = &slot.next;
  progress->n_others = 0;
  ++progress->n_found;
  return true;
}

// As note(), where that is not what was predicted or not known to be.
inline bool FastPath::note_unpredicted(std::uint32_t column,
                                       Progress* progress) noexcept {
  Slot& slot = slots_[column];
  if (*progress->guess != column || slot.n_others_before != progress->n_others) {
    ++progress->n_misses;
    if (n_unpredicted_ == 0) {
      *progress->guess = column;
      slot.n_others_before = progress->n_others;
    }
  }
  return note(column, progress);
}

// Decodes entries for as long as they are numbers and the ones that are predicted.
inline void FastPath::decode_predicted(BatchBuilder* batch,
                                       Progress* progress) noexcept {
  while (true) {
    const std::uint32_t column = *progress->guess;
    const Slot& slot = slots_[column];
    progress->tried = kNone;
    if (slot.form == Form::kOther || slot.n_others_before != progress->n_others) return;
    const std::uint8_t* after = decode_number(column, *progress, batch);
    if (after == nullptr) progress->tried = column;
    if (after == nullptr || !note(column, progress)) return;
    progress->p = after;
  }
}

// Decodes the next entry, whatever it is. False if it cannot be proven.
inline bool FastPath::decode_entry(FeatureDecoder* decoder, BatchBuilder* batch,
                                   Progress* progress) {
  const std::uint32_t likely = likely_column(progress->p);
  if (likely == kNone && skip_other(progress)) return true;
  if (likely != kNone && likely != progress->tried &&
      slots_[likely].form != Form::kOther) {
    if (const std::uint8_t* after = decode_number(likely, *progress, batch)) {
      progress->p = after;
      return note_unpredicted(likely, progress);
    }
  }
  Bytes entry, key, feature;
  progress->p = read_plain_field(progress->p, progress->end, kTagOne, &entry);
  if (progress->p == nullptr || !find_plain_entry(entry, &key, &feature)) return false;
  const std::uint32_t column = find(key);
  if (column == kNone) {
    ++progress->n_others;
    ++progress->n_others_in_all;
    return true;
  }
  return note_unpredicted(column, progress) &&
         !decoder->decode(column, feature, progress->row, batch);
}

bool FastPath::decode(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
                      BatchBuilder* batch) {
  if (n_declined_ > 0) {
    --n_declined_;
    return false;
  }
  if (read(record, row, decoder, batch)) {
    n_failures_ = 0;
    return true;
  }
  if (++n_failures_ == kMostFailures) {
    n_failures_ = 0;
    n_declined_ = kDeclined;
  }
  return false;
}

bool FastPath::read(BytesWithSlack record, std::size_t row, FeatureDecoder* decoder,
                    BatchBuilder* batch) {
  Bytes features;
  if (!find_plain_field(record.bytes(), kTagOne, &features)) return false;
  ++n_records_;
  Progress progress{.p = features.data(),
                    .end = features.data() + features.size(),
                    .row = row,
                    .guess = &first_};
  while (true) {
    if (n_unpredicted_ == 0) decode_predicted(batch, &progress);
    if (progress.p == progress.end) break;
    if (!decode_entry(decoder, batch, &progress)) return false;
  }
  learn(progress);
  if (progress.n_found == slots_.size()) return true;
  for (std::uint32_t column = 0; column < slots_.size(); ++column) {
    if (slots_[column].last_record != n_records_ &&
        decoder->fill_missing(column, row, batch)) {
      return false;
    }
  }
  return true;
}

// Decides whether the next record is predicted.
void FastPath::learn(const Progress& progress) noexcept {
  if (n_unpredicted_ > 0) {
    --n_unpredicted_;
    return;
  }
  const std::uint32_t n_entries = progress.n_found + progress.n_others_in_all;
  n_disorderly_ = 4 * progress.n_misses > n_entries ? n_disorderly_ + 1 : 0;
  if (n_disorderly_ < kMostDisorderly) return;
  n_disorderly_ = 0;
  n_unpredicted_ = kUnpredicted;
}

}  // namespace fastrec
