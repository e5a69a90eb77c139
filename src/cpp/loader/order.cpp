#include "loader/order.h"

#include <algorithm>

#include "base/random.h"

namespace fastrec {

void Order::upcoming(std::span<const std::uint64_t>, std::vector<RecordRange>*) const {}

void ListedOrder::to_records(std::span<std::uint64_t> positions) const {
  for (std::uint64_t& position : positions) position = records_[position];
}

namespace {

// The number of blocks per lane that brings blocks close to `block_records`.
std::uint64_t rounds(std::uint64_t n_records, std::uint64_t block_records,
                     std::uint64_t n_lanes) {
  const std::uint64_t n_blocks = n_records / block_records;
  return std::max<std::uint64_t>(1, (n_blocks + n_lanes / 2) / n_lanes);
}

}  // namespace

BlockOrder::BlockOrder(std::uint64_t n_records, std::uint64_t key,
                       std::uint64_t block_records, std::uint64_t n_lanes)
    : n_records_(n_records),
      n_lanes_(n_lanes),
      n_rounds_(rounds(n_records, block_records, n_lanes)),
      n_rows_((n_records + n_blocks() - 1) / n_blocks()),
      shorter_rows_(n_records / n_blocks()),
      n_long_blocks_(n_records % n_blocks()),
      rotation_key_(key_of(key, 0, 0)),
      blocks_(n_blocks(), key_of(key, 0, 1)),
      rows_(n_rows_, key_of(key, 0, 2)) {}

std::uint64_t BlockOrder::begin_of(std::uint64_t block) const noexcept {
  return block * shorter_rows_ + std::min(block, n_long_blocks_);
}

RecordRange BlockOrder::records_of(std::uint64_t block) const noexcept {
  return {begin_of(block), begin_of(block + 1) - begin_of(block)};
}

// All blocks share one permutation of rows. Each block rotates the rows before and
// after it by its own amounts.
BlockOrder::RotatedBlock BlockOrder::rotated_block(std::uint64_t index) const noexcept {
  const std::uint64_t block = blocks_(index);
  KeyStream rotations(rotation_key_ ^ mix64(block));
  const std::uint64_t before = rotations.below(n_rows_);
  return {index, block, records_of(block), before, rotations.below(n_rows_)};
}

// The number that a cell maps to; `*current` is any block, and then that of the cell.
std::uint64_t BlockOrder::mapped(std::uint64_t position, RotatedBlock* current) const {
  const std::uint64_t lane = position % n_lanes_, cell = position / n_lanes_;
  const std::uint64_t round = cell / n_rows_, row = cell % n_rows_;
  const std::uint64_t index = round * n_lanes_ + lane;
  if (index != current->index) *current = rotated_block(index);
  const std::uint64_t offset =
      (rows_((row + current->rotation_before) % n_rows_) + current->rotation_after) %
      n_rows_;
  return offset < current->records.count
             ? current->records.first + offset
             : n_records_ + (current->block - n_long_blocks_);
}

void BlockOrder::to_records(std::span<std::uint64_t> positions) const {
  if (positions.empty()) return;
  RotatedBlock current = rotated_block(0);
  for (std::uint64_t& position : positions) {
    do position = mapped(position, &current);
    while (position >= n_records_);
  }
}

void BlockOrder::upcoming(std::span<const std::uint64_t> positions,
                          std::vector<RecordRange>* ranges) const {
  const auto add = [&](std::uint64_t index) {
    const std::uint64_t block = blocks_(index);
    const RecordRange records = records_of(block);
    ranges->push_back(records);
    if (records.count == n_rows_) return;
    const std::uint64_t surplus = n_records_ + (block - n_long_blocks_);
    std::uint64_t record = surplus;
    RotatedBlock current = rotated_block(0);
    do record = mapped(record, &current);
    while (record >= n_records_ && record != surplus);
    // No position leads to a cycle of surplus cells only.
    if (record < n_records_) ranges->push_back({record, 1});
  };
  for (const std::uint64_t position : positions) {
    const std::uint64_t lane = position % n_lanes_, cell = position / n_lanes_;
    const std::uint64_t round = cell / n_rows_, row = cell % n_rows_;
    if (round == 0 && row == 0) add(lane);
    const bool is_due = row == lane * n_rows_ / (2 * n_lanes_);
    const std::uint64_t next = (round + 1) * n_lanes_ + lane;  // block of this lane
    // The last blocks may have no positions, only records that others map to.
    if (is_due && (round + 1) * n_rows_ * n_lanes_ + lane < n_records_) add(next);
  }
}

std::shared_ptr<Order> make_order(const Shuffle& shuffle, std::uint64_t n_records,
                                  std::uint64_t seed, std::uint64_t epoch,
                                  std::uint64_t stream) {
  const std::uint64_t key = key_of(seed, epoch, stream);
  switch (shuffle.kind) {
    case Shuffle::Kind::kShuffled:
      return std::make_shared<ShuffledOrder>(n_records, key);
    case Shuffle::Kind::kBlocks:
      return std::make_shared<BlockOrder>(n_records, key, shuffle.block_records,
                                          shuffle.n_lanes);
    case Shuffle::Kind::kSequential:
      break;
  }
  return std::make_shared<SequentialOrder>(n_records);
}

}  // namespace fastrec
