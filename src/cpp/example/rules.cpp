#include "example/rules.h"

#include <algorithm>
#include <span>

namespace fastrec {
namespace {

using Numbers = std::span<const std::int64_t>;

bool is_in_order(Numbers numbers) {
  return numbers.empty() ||
         (numbers.front() >= 0 && std::is_sorted(numbers.begin(), numbers.end()));
}

Fault check_total(std::uint64_t total, std::uint64_t n_items) {
  if (total == n_items) return {};
  return {.code = Errc::kPartitionTotal, .found = total, .expected = n_items};
}

Fault check_lengths(Numbers lengths, std::uint64_t n_items) {
  std::uint64_t total = 0;
  for (const std::int64_t length : lengths) {
    if (length < 0) return {.code = Errc::kPartitionOrder};
    // Stops before sums could overflow.
    if (static_cast<std::uint64_t>(length) > n_items - total) {
      return check_total(total + static_cast<std::uint64_t>(length), n_items);
    }
    total += static_cast<std::uint64_t>(length);
  }
  return check_total(total, n_items);
}

Fault check_row_ids(Numbers ids, std::uint64_t n_items, std::uint64_t* n_rows) {
  if (Fault fault = check_total(ids.size(), n_items)) return fault;
  if (!is_in_order(ids)) return {.code = Errc::kPartitionOrder};
  *n_rows = ids.empty() ? 0 : static_cast<std::uint64_t>(ids.back()) + 1;
  if (*n_rows <= kMostPartitionRows) return {};
  return {
      .code = Errc::kPartitionRows, .found = *n_rows, .expected = kMostPartitionRows};
}

// Checks how `numbers` divide `*n` items, and sets `*n` to how many rows they make.
Fault check_partition(const Partition& partition, Numbers numbers, std::uint64_t* n) {
  const std::uint64_t n_items = *n;
  *n = numbers.size();
  switch (partition.kind) {
    case PartitionKind::kUniformRowLength:
      *n = n_items / partition.uniform_length;
      return check_total(*n * partition.uniform_length, n_items);
    case PartitionKind::kRowLengths:
      return check_lengths(numbers, n_items);
    case PartitionKind::kValueRowIds:
      return check_row_ids(numbers, n_items, n);
    default:
      break;
  }
  if (numbers.empty()) return check_total(0, n_items);
  if (partition.kind == PartitionKind::kRowSplits) --*n;
  if (!is_in_order(numbers)) return {.code = Errc::kPartitionOrder};
  const bool begins = partition.kind != PartitionKind::kRowLimits;
  if (begins && numbers.front() != 0) return {.code = Errc::kPartitionOrder};
  const auto last = static_cast<std::uint64_t>(numbers.back());
  // The last row starts somewhere, and ends where the items do.
  if (partition.kind == PartitionKind::kRowStarts && last <= n_items) return {};
  return check_total(last, n_items);
}

Fault check_partitions(const RowRule& rule, const BatchBuilder& batch) {
  std::uint64_t n = batch.n_last_items(rule.values);
  for (auto level = rule.partitions.rbegin(); level != rule.partitions.rend();
       ++level) {
    const bool is_uniform = level->kind == PartitionKind::kUniformRowLength;
    const Numbers numbers = is_uniform ? Numbers() : batch.last_items(level->column);
    if (Fault fault = check_partition(*level, numbers, &n)) {
      fault.column = static_cast<std::int32_t>(level->column);
      return fault;
    }
  }
  return {};
}

Fault check_indices(const RowRule& rule, const BatchBuilder& batch) {
  const std::size_t n_values = batch.n_last_items(rule.values);
  for (const RowRule::Indices& indices : rule.indices) {
    Fault fault;
    fault.column = static_cast<std::int32_t>(indices.column);
    const Numbers numbers = batch.last_items(indices.column);
    if (numbers.size() != n_values) {
      fault.code = Errc::kIndexCount;
      fault.found = numbers.size();
      fault.expected = n_values;
      return fault;
    }
    for (const std::int64_t index : numbers) {
      if (index >= 0 && index < indices.size) continue;
      fault.code = Errc::kIndexOutOfRange;
      fault.found = static_cast<std::uint64_t>(index);
      fault.expected = static_cast<std::uint64_t>(indices.size);
      return fault;
    }
  }
  return {};
}

}  // namespace

Fault check_rules(const Schema& schema, const BatchBuilder& batch) {
  for (const RowRule& rule : schema.rules) {
    if (Fault fault = check_partitions(rule, batch)) return fault;
    if (Fault fault = check_indices(rule, batch)) return fault;
  }
  return {};
}

}  // namespace fastrec
