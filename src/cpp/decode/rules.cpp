#include "decode/rules.h"

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
    // Stops before a sum can overflow.
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
  if (*n_rows <= kMaxPartitionRows) return {};
  return {
      .code = Errc::kPartitionRows, .found = *n_rows, .expected = kMaxPartitionRows};
}

// Checks that `numbers` partition `*n` items, and sets `*n` to the number of rows.
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
  const bool has_start = partition.kind != PartitionKind::kRowLimits;
  if (has_start && numbers.front() != 0) return {.code = Errc::kPartitionOrder};
  const auto last = static_cast<std::uint64_t>(numbers.back());
  // The last row starts anywhere and ends with the items.
  if (partition.kind == PartitionKind::kRowStarts && last <= n_items) return {};
  return check_total(last, n_items);
}

// Checks the partitions of `n` items. `numbers_of` returns the numbers of a partition
// by its index in the rule; `on_rows` receives the number of rows of a partition.
template <typename NumbersOf, typename OnRows>
Fault check_levels(const RowRule& rule, std::uint64_t n, NumbersOf&& numbers_of,
                   OnRows&& on_rows) {
  for (std::size_t level = rule.partitions.size(); level-- > 0;) {
    const Partition& partition = rule.partitions[level];
    const bool is_uniform = partition.kind == PartitionKind::kUniformRowLength;
    Fault fault =
        check_partition(partition, is_uniform ? Numbers() : numbers_of(level), &n);
    if (!fault) fault = on_rows(partition, n);
    if (fault) return of_column(fault, partition.column);
  }
  return {};
}

Fault check_partitions(const RowRule& rule, const BatchBuilder& batch) {
  return check_levels(
      rule, batch.n_last_items(rule.values),
      [&](std::size_t level) {
        return batch.last_items(rule.partitions[level].column);
      },
      [](const Partition&, std::uint64_t) { return Fault(); });
}

// In feature lists, each step of a partition partitions the items of the same step of
// the values. The column after a list holds its step sizes.
Fault check_step_partitions(const RowRule& rule, const BatchBuilder& batch,
                            StepBegins* begins) {
  const Numbers sizes = batch.last_items(rule.values + 1);
  for (const Partition& partition : rule.partitions) {
    if (partition.kind == PartitionKind::kUniformRowLength) continue;
    const std::size_t n_steps = batch.last_items(partition.column + 1).size();
    if (n_steps == sizes.size()) continue;
    return of_column(
        {.code = Errc::kStepCount, .found = n_steps, .expected = sizes.size()},
        partition.column);
  }
  begins->assign(rule.partitions.size(), 0);
  std::uint64_t n_id_rows = 0;
  for (std::size_t step = 0; step < sizes.size(); ++step) {
    const auto numbers_of = [&](std::size_t level) {
      const std::size_t column = rule.partitions[level].column;
      const std::int64_t n = batch.last_items(column + 1)[step];
      const std::size_t begin = (*begins)[level];
      (*begins)[level] += static_cast<std::size_t>(n);
      return batch.last_items(column).subspan(begin, static_cast<std::size_t>(n));
    };
    const auto on_rows = [&](const Partition& partition, std::uint64_t n) -> Fault {
      if (partition.kind != PartitionKind::kValueRowIds) return {};
      n_id_rows += n;
      if (n_id_rows <= kMaxPartitionRows) return {};
      return {.code = Errc::kPartitionRows,
              .found = n_id_rows,
              .expected = kMaxPartitionRows};
    };
    const auto n_items = static_cast<std::uint64_t>(sizes[step]);
    if (Fault fault = check_levels(rule, n_items, numbers_of, on_rows)) return fault;
  }
  return {};
}

Fault check_indices(const RowRule& rule, const BatchBuilder& batch) {
  const std::size_t n_values = batch.n_last_items(rule.values);
  for (const RowRule::Indices& indices : rule.indices) {
    const Numbers numbers = batch.last_items(indices.column);
    if (numbers.size() != n_values) {
      return of_column(
          {.code = Errc::kIndexCount, .found = numbers.size(), .expected = n_values},
          indices.column);
    }
    const auto outside = std::ranges::find_if(numbers, [&](std::int64_t index) {
      return index < 0 || index >= indices.size;
    });
    if (outside != numbers.end()) {
      return of_column({.code = Errc::kIndexOutOfRange,
                        .found = static_cast<std::uint64_t>(*outside),
                        .expected = static_cast<std::uint64_t>(indices.size)},
                       indices.column);
    }
  }
  return {};
}

}  // namespace

Fault check_rules(const Schema& schema, const BatchBuilder& batch, StepBegins* begins) {
  for (const RowRule& rule : schema.rules) {
    const bool has_steps = schema.columns[rule.values].section == Section::kLists;
    Fault fault = has_steps ? check_step_partitions(rule, batch, begins)
                            : check_partitions(rule, batch);
    if (fault) return fault;
    fault = check_indices(rule, batch);
    if (fault) return fault;
  }
  return {};
}

}  // namespace fastrec
