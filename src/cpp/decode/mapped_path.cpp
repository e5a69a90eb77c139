#include "decode/mapped_path.h"

#include <algorithm>
#include <cstring>

#include "record/framing.h"
#include "wire/plain.h"

namespace fastrec {
namespace {

// A smaller value is decoded from private memory.
constexpr std::size_t kLargeBytes = 512;

// Bytes to copy from the beginning of an entry: all of an entry for the plan kernel.
constexpr std::size_t kAheadBytes = 136;

// The header of a string, and more strings than a list can have.
constexpr std::size_t kStringHeaderBytes = 11;
constexpr std::size_t kMaxStrings = std::size_t{1} << 60;

// Fewer bytes of large values per column do not pay: FastPath reads small ones faster.
constexpr std::size_t kColumnBytes = 64;

}  // namespace

// The content of a field, as offsets in the frame.
struct MappedPath::Field {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
};

// The progress of reading a frame.
struct MappedPath::Progress {
  const Crc32cKernel& kernel;
  Bytes frame;
  std::uint8_t* copy;  // its private parts, at the same offsets
  std::size_t row;
  BatchBuilder* batch;
  std::size_t record_begin, record_end;  // of the record in the frame
  bool is_framed;                        // the record has a checksum
  std::size_t n_copied = 0;              // end of the bytes copied or delivered
  std::size_t n_summed = record_begin;   // end of the bytes in `crc`
  std::uint32_t crc = 0;
  std::size_t n_direct_bytes = 0;  // of values that were not copied to `copy`
  bool has_failed = false;         // after values were delivered

  void copy_up_to(std::size_t end) {
    end = std::min(end, frame.size());
    if (end <= n_copied) return;
    std::memcpy(copy + n_copied, frame.data() + n_copied, end - n_copied);
    n_copied = end;
  }

  void sum_up_to(std::size_t end) {
    if (!is_framed) return;
    crc = kernel.extend(crc, {copy + n_summed, end - n_summed});
    n_summed = end;
  }

  // Adds the rest of an entry to `crc`, and copies it to `target` unless that is null.
  void pass(const Field& value, std::uint8_t* target) {
    sum_up_to(value.begin);
    const Bytes bytes = frame.subspan(value.begin, value.size());
    if (!is_framed) {
      if (target != nullptr) std::memcpy(target, bytes.data(), bytes.size());
    } else {
      crc = target ? kernel.copy(crc, bytes, target) : kernel.extend(crc, bytes);
    }
    n_copied = n_summed = value.end;
    n_direct_bytes += value.size();
  }

  // Finds the field of `tag` at `offset`. Its header must have been copied.
  bool find_field(std::size_t offset, std::uint8_t tag, Field* field) const {
    if (offset >= n_copied || copy[offset] != tag) return false;
    std::uint64_t length;
    const std::uint8_t* content =
        read_length(copy + offset + 1, copy + n_copied, &length);
    if (content == nullptr) return false;
    field->begin = static_cast<std::size_t>(content - copy);
    if (field->begin > record_end || length > record_end - field->begin) return false;
    field->end = field->begin + static_cast<std::size_t>(length);
    return true;
  }
};

bool MappedPath::decode(Bytes frame, bool is_framed, std::size_t row,
                        FeatureDecoder* decoder, BatchBuilder* batch) {
  Progress progress{.kernel = kernel_,
                    .frame = frame,
                    .copy = buffer_.room(frame.size()).data(),
                    .row = row,
                    .batch = batch,
                    .record_begin = is_framed ? kHeaderBytes : 0,
                    .record_end = frame.size() - (is_framed ? kFooterBytes : 0),
                    .is_framed = is_framed};
  lookup_.begin_record();
  const bool is_read = read(decoder, &progress);
  back_off_.report(is_read && 2 * progress.n_direct_bytes >= frame.size() &&
                   progress.n_direct_bytes >= kColumnBytes * lookup_.columns.size());
  return is_read;
}

bool MappedPath::read(FeatureDecoder* decoder, Progress* progress) {
  const Bytes frame = progress->frame;
  const std::uint8_t* const copy = progress->copy;
  const std::size_t begin = progress->record_begin, end = progress->record_end;
  progress->copy_up_to(begin + kAheadBytes);
  std::uint64_t length;
  if (progress->is_framed &&
      (check_header(copy, frame.size(), &length) || begin + length != end)) {
    return false;
  }
  Field features;
  if (!progress->find_field(begin, kTagOne, &features) || features.end != end) {
    return false;
  }
  for (std::size_t next = features.begin; next != end;) {
    progress->copy_up_to(next + kAheadBytes);
    const std::uint8_t* const copied = copy + std::min(progress->n_copied, end);
    PlanRun run{copy + next, copied, progress->row, progress->batch};
    if (plan_.run_by_key(frame.size(), &lookup_, &run) > 0) {
      next = static_cast<std::size_t>(run.p - copy);
      continue;
    }
    Field entry;
    if (!progress->find_field(next, kTagOne, &entry)) return false;
    next = entry.end;
    if (entry.size() >= kLargeBytes && read_large(entry, progress)) continue;
    progress->copy_up_to(entry.end);
    Bytes key, feature;
    if (!find_plain_entry({copy + entry.begin, entry.size()}, &key, &feature)) {
      return false;
    }
    const std::uint32_t column = lookup_.keys.find(key);
    if (column != KeyTable::kNone &&
        (!lookup_.mark(column) ||
         decoder->decode(column, feature, progress->row, progress->batch))) {
      return false;
    }
  }
  progress->copy_up_to(frame.size());
  progress->sum_up_to(end);
  if (progress->is_framed &&
      load_le<std::uint32_t>(copy + end) != crc32c_mask(progress->crc)) {
    return false;
  }
  return !progress->has_failed &&
         lookup_.fill_missing(progress->row, *decoder, progress->batch);
}

// Reads an entry of one large value that needs no conversion, or that no column reads.
// False, without any effect, for any other entry.
bool MappedPath::read_large(const Field& entry, Progress* progress) {
  Field key, feature, list, value;
  if (!progress->find_field(entry.begin, kTagOne, &key) ||
      key.end > progress->n_copied ||
      !progress->find_field(key.end, kTagTwo, &feature) || feature.end != entry.end) {
    return false;
  }
  const std::uint32_t column =
      lookup_.keys.find({progress->copy + key.begin, key.size()});
  if (column == KeyTable::kNone) {
    progress->pass(feature, nullptr);
    return true;
  }
  const PlanEntry& wanted = lookup_.columns[column];
  if (lookup_.has(column) || wanted.form == EntryForm::kUnknown) return false;
  const auto kind_tag =
      static_cast<std::uint8_t>(static_cast<unsigned>(wanted.spec->kind) << 3 | 2);
  if (!progress->find_field(feature.begin, kind_tag, &list) || list.end != entry.end ||
      !progress->find_field(list.begin, kTagOne, &value)) {
    return false;
  }
  if (value.end != entry.end) [[unlikely]] {
    return read_strings(list, column, progress);
  }
  BatchBuilder* const batch = progress->batch;
  const bool is_string = wanted.form == EntryForm::kString;
  if (!is_string &&
      (wanted.form != EntryForm::kBlock || wanted.payload_bytes != value.size())) {
    return false;
  }
  lookup_.mark(column);
  progress->pass(value, is_string ? batch->extend_string(column, value.size())
                                  : batch->row(column, progress->row));
  return true;
}

// Reads a list of large strings, and delivers those that are needed. False, without any
// effect, for any other list. May set `progress->has_failed`, after an effect.
bool MappedPath::read_strings(const Field& list, std::uint32_t column,
                              Progress* progress) {
  const ColumnSpec& spec = *lookup_.columns[column].spec;
  Field string;
  if (lookup_.columns[column].form != EntryForm::kList || !spec.holds_strings() ||
      spec.n_values != 1 || spec.truncate || spec.length ||
      !progress->find_field(list.begin, kTagOne, &string) ||
      string.size() < kLargeBytes) {
    return false;
  }
  lookup_.mark(column);
  BatchBuilder* const batch = progress->batch;
  // Of a list of any size: the last string may be needed in place of later ones.
  const auto [begin, end] = batch->needed_items(column, kMaxStrings);
  std::size_t n = 0;
  for (std::size_t next = list.begin; next != list.end; ++n) {
    progress->copy_up_to(next + kStringHeaderBytes);
    if (!progress->find_field(next, kTagOne, &string) || string.end > list.end) {
      progress->has_failed = true;
      return true;
    }
    const bool is_needed = begin <= n && n < end;
    progress->pass(string,
                   is_needed ? batch->extend_string(column, string.size()) : nullptr);
    next = string.end;
  }
  progress->has_failed = begin >= n;
  batch->end_needed_row(column, n);
  return true;
}

}  // namespace fastrec
