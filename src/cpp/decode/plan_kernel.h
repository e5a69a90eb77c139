// The kernels of plan.h, for any instruction set. The including file defines
// FASTREC_TARGET_PLAN, the target to compile for, and, in this namespace,
//
//   // Whether the first `n` bytes at `p` (at most 32) equal those of `part`, with
//   // `size` added to the lengths.
//   bool is_part(const PlanEntry::Part& part, std::size_t n, const std::uint8_t* p,
//                std::uint8_t size);
//   // Reads the varint at the beginning of `bytes` if it has `n` bytes, at most 8.
//   bool read_number(std::uint64_t bytes, std::size_t n, std::uint64_t* value);
#pragma once

#include <cstring>

#include "decode/plan.h"
#include "wire/plain.h"
#include "wire/varint.h"

namespace fastrec::kernels {
namespace {

// Whether the first `n` bytes at `p` are the header of `entry` for a payload of `size`.
FASTREC_TARGET_PLAN
inline bool is_header(const PlanEntry& entry, std::size_t n, const std::uint8_t* p,
                      std::uint8_t size) noexcept {
  constexpr std::size_t kPart = PlanEntry::kPartBytes;
  if (!is_part(entry.first, n, p, size)) return false;
  return n <= kPart || is_part(entry.second, n - kPart, p + kPart, size);
}

// Reads a varint of 9 or 10 bytes. Returns false if it is not valid.
[[gnu::noinline]] bool read_long_number(const std::uint8_t* payload, std::size_t n,
                                        std::uint64_t* value) noexcept {
  const auto low = load_le<std::uint64_t>(payload);
  const std::uint64_t ninth = payload[8], tenth = payload[9];
  if ((low & kTopBits) != kTopBits || n < 9 || n > 10) return false;
  if (n == 9 ? ninth >= 0x80 : (ninth < 0x80 || tenth >= 0x80)) return false;
  *value = without_top_bits(low) | (ninth & 0x7f) << 56;
  if (n == 10) *value |= tenth << 63;
  return true;
}

// Decodes the payload of `entry` at `p`. `size` is ignored if the form has a constant
// size. Returns the end of the payload, or nullptr if it does not fit the column.
FASTREC_TARGET_PLAN
inline const std::uint8_t* read_payload(const PlanEntry& entry, const std::uint8_t* p,
                                        std::size_t size, const PlanRun& run,
                                        const BatchBuilder::Rows* rows) {
  // Negative if the header matched bytes behind the end of the record.
  const std::ptrdiff_t n_left = run.end - p;
  const auto has = [n_left](std::size_t n) {
    return n_left >= static_cast<std::ptrdiff_t>(n);
  };
  const auto target = [&] {
    return rows[entry.column].first + run.row * rows[entry.column].stride;
  };
  if (entry.form == EntryForm::kInt64) {
    std::uint64_t value;
    if (!has(size)) return nullptr;
    if (!read_number(load_le<std::uint64_t>(p), size, &value) &&
        !read_long_number(p, size, &value)) {
      return nullptr;
    }
    std::memcpy(target(), &value, sizeof value);
    return p + size;
  }
  if (entry.form == EntryForm::kFloat32) {
    if (!has(sizeof(float))) return nullptr;
    std::memcpy(target(), p, sizeof(float));
    return p + sizeof(float);
  }
  if (entry.form == EntryForm::kBlock) {
    if (!has(entry.payload_bytes)) return nullptr;
    std::memcpy(target(), p, entry.payload_bytes);
    return p + entry.payload_bytes;
  }
  if (entry.form == EntryForm::kUnknown || !has(size) ||
      size > entry.payload_bytes_max) {
    return nullptr;
  }
  const bool is_stored =
      entry.form == EntryForm::kSkipped || store_payload(entry, {p, size}, run);
  return is_stored ? p + size : nullptr;
}

// Decodes `entry` at `p` into row `run.row`. Returns the end of the entry, or nullptr if
// it cannot be proven.
FASTREC_TARGET_PLAN
inline const std::uint8_t* run_entry(const PlanEntry& entry, const std::uint8_t* p,
                                     const PlanRun& run,
                                     const BatchBuilder::Rows* rows) {
  const std::uint8_t* const payload = p + entry.header_bytes;
  const std::uint8_t size = payload[-1];
  if (!is_header(entry, entry.header_bytes, p, size)) [[unlikely]] {
    return store_list(entry, p, run);
  }
  return read_payload(entry, payload, size, run, rows);
}

FASTREC_TARGET_PLAN
inline std::size_t run_entries(const PlanEntry* entries, std::size_t n,
                               PlanRun* position) {
  const PlanRun run = *position;  // a copy: stores cannot alias it
  const BatchBuilder::Rows* const rows = run.batch->rows();
  const std::uint8_t* p = run.p;
  const PlanEntry* const last = entries + n;
  const PlanEntry* at = entries;
  for (; at != last; ++at) {
    const std::uint8_t* const next = run_entry(*at, p, run, rows);
    if (next == nullptr) break;
    p = next;
  }
  position->p = p;
  return static_cast<std::size_t>(at - entries);
}

// Decodes two records at once. In one record, each position depends on a load at the
// position before; the loads of two records overlap.
FASTREC_TARGET_PLAN
inline bool run_both(const PlanEntry* entries, std::size_t n, const PlanRun& first,
                     const PlanRun& second) {
  const PlanRun runs[] = {first, second};  // copies: stores cannot alias them
  const BatchBuilder::Rows* const rows = first.batch->rows();
  const std::uint8_t *p = first.p, *q = second.p;
  for (const PlanEntry* at = entries; at != entries + n; ++at) {
    const PlanEntry& entry = *at;
    const std::uint8_t* const p_payload = p + entry.header_bytes;
    const std::uint8_t* const q_payload = q + entry.header_bytes;
    const std::uint8_t p_size = p_payload[-1], q_size = q_payload[-1];
    std::uint64_t p_value, q_value;
    if (!is_header(entry, entry.header_bytes, p, p_size) ||
        !is_header(entry, entry.header_bytes, q, q_size)) [[unlikely]] {
      p = run_entry(entry, p, runs[0], rows);
      q = p != nullptr ? run_entry(entry, q, runs[1], rows) : nullptr;
    } else if (entry.form == EntryForm::kInt64 &&
               read_number(load_le<std::uint64_t>(p_payload), p_size, &p_value) &&
               read_number(load_le<std::uint64_t>(q_payload), q_size, &q_value))
        [[likely]] {
      const auto [begin, stride] = rows[entry.column];
      std::uint8_t* const target = begin + runs[0].row * stride;
      std::memcpy(target, &p_value, sizeof p_value);
      std::memcpy(target + stride, &q_value, sizeof q_value);
      p = p_payload + p_size;
      q = q_payload + q_size;
    } else {
      p = read_payload(entry, p_payload, p_size, runs[0], rows);
      q = p != nullptr ? read_payload(entry, q_payload, q_size, runs[1], rows)
                       : nullptr;
    }
    if (q == nullptr) return false;
    if (p > runs[0].end || q > runs[1].end) return false;
  }
  return p == runs[0].end && q == runs[1].end;
}

// Returns the end of the entry at `p` if it consists of a key and a value, with lengths
// of one byte each; otherwise nullptr.
inline const std::uint8_t* skip_entry(const std::uint8_t* p, const std::uint8_t* end) {
  const std::size_t n_entry = p[1], n_key = p[3];
  if (n_entry < n_key + 4) return nullptr;
  const std::uint8_t* const value = p + 4 + n_key;
  if (p[0] != kTagOne || p[2] != kTagOne || value[0] != kTagTwo ||
      value[1] != n_entry - n_key - 4 || end - p < std::ptrdiff_t(2 + n_entry)) {
    return nullptr;
  }
  return p + 2 + n_entry;
}

// Returns the size of the payload of `entry` at `p`, derived from the entry's length.
inline std::uint8_t payload_bytes(const PlanEntry& entry, const std::uint8_t* p) {
  return static_cast<std::uint8_t>(2 + p[1] - entry.header_bytes);
}

FASTREC_TARGET_PLAN
inline bool is_short_entry(const PlanEntry& entry, const std::uint8_t* p) {
  return is_header(entry, entry.header_bytes, p, payload_bytes(entry, p));
}

// Replaces a candidate that did not match the entry at `p` by the column of its key, or
// by KeyTable::kNone. Returns false if the entry cannot be proven.
[[gnu::noinline]] FASTREC_TARGET_PLAN bool find_column(const ColumnLookup& lookup,
                                                       const std::uint8_t* p,
                                                       std::uint32_t* column) {
  const std::uint32_t found = lookup.keys.find({p + 4, p[3]});
  if (found == *column) return false;
  *column = found;
  return found == KeyTable::kNone || is_short_entry(lookup.columns[found], p);
}

FASTREC_TARGET_PLAN
inline std::size_t find_entries(std::size_t n_max, ColumnLookup* lookup,
                                PlanRun* position) {
  constexpr std::size_t kMaxEntryBytes = 0x7f, kMaxKeyBytes = 63;
  const PlanRun run = *position;  // copies: stores cannot alias them
  const KeyTable& keys = lookup->keys;
  const PlanEntry* const columns = lookup->columns.data();
  const BatchBuilder::Rows* const rows = run.batch->rows();
  const std::uint8_t* p = run.p;
  std::uint32_t column = KeyTable::kNone;
  std::size_t n = 0;
  for (; n != n_max && p != run.end; ++n) {
    const std::size_t n_key = p[3];
    if (p[1] > kMaxEntryBytes || n_key > kMaxKeyBytes) break;
    // The next position depends on one load, so lookups of several entries overlap.
    const std::uint8_t* const after = p + 2 + p[1];
    column = keys.candidate(p + 4, n_key);
    if (column != KeyTable::kNone && !is_short_entry(columns[column], p)) [[unlikely]] {
      if (!find_column(*lookup, p, &column)) break;
    }
    if (column == KeyTable::kNone) {
      if (skip_entry(p, run.end) == nullptr) break;
    } else {
      const PlanEntry& entry = columns[column];
      const std::uint8_t* const payload = p + entry.header_bytes;
      if (lookup->has(column) ||
          read_payload(entry, payload, payload_bytes(entry, p), run, rows) != after) {
        break;
      }
      lookup->mark(column);
    }
    lookup->last = column;
    p = after;
  }
  position->p = p;
  return n;
}

}  // namespace
}  // namespace fastrec::kernels
