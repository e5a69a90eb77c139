#include "batch/column.h"

#include <algorithm>
#include <utility>

namespace fastrec {
namespace {

std::size_t aligned(std::size_t size) {
  return (size + Block::kAlignment - 1) / Block::kAlignment * Block::kAlignment;
}

bool holds_strings(const ColumnSpec& spec) { return spec.dtype == DType::kBytes; }

bool is_dense_numbers(const ColumnSpec& spec) {
  return spec.layout != Layout::kRagged && !holds_strings(spec);
}

}  // namespace

// Lays small arrays side by side: first their sizes are announced, then they are cut
// from one block.
class BatchBuilder::SharedBlock {
 public:
  void announce(std::size_t size) {
    if (size <= kOwnBlockBytes) total_ += aligned(size);
  }

  Array cut(std::size_t size, BlockPool* pool) {
    if (size > kOwnBlockBytes) {
      auto own = pool->take(size);
      std::uint8_t* data = own->data();
      return {std::move(own), data};
    }
    if (!block_) block_ = pool->take(std::max<std::size_t>(total_, 1));
    Array array{block_, block_->data() + used_};
    used_ += aligned(size);
    return array;
  }

 private:
  std::shared_ptr<Block> block_;
  std::size_t total_ = 0;
  std::size_t used_ = 0;
};

void GrowingArray::grow(std::size_t n_bytes) {
  // Batches are much alike: what the last one came to is what this one will need. The
  // eighth more is for those that are a little larger.
  const std::size_t expected = last_size_ + last_size_ / 8;
  auto larger = pool_->take(std::max({size_ + n_bytes, 2 * capacity(), expected}));
  if (size_ != 0) std::memcpy(larger->data(), block_->data(), size_);
  block_ = std::move(larger);
}

Array GrowingArray::release() {
  std::uint8_t* data = block_->data();
  last_size_ = std::exchange(size_, 0);
  return {std::exchange(block_, nullptr), data};
}

void GrowingArray::move_to(std::uint8_t* target) {
  // One huge batch must not keep its memory for as long as there are batches.
  constexpr std::size_t kKeptBytes = std::size_t{1} << 20;
  if (size_ != 0) std::memcpy(target, block_->data(), size_);
  last_size_ = std::exchange(size_, 0);
  if (capacity() > std::max(kKeptBytes, 4 * last_size_)) block_.reset();
}

BatchBuilder::BatchBuilder(std::shared_ptr<const Schema> schema,
                           std::shared_ptr<BlockPool> pool)
    : schema_(std::move(schema)), pool_(std::move(pool)) {
  dense_.resize(schema_->columns.size());
  for (const ColumnSpec& spec : schema_->columns) {
    row_bytes_.push_back(spec.row_bytes());
    growing_.push_back({GrowingArray(pool_), GrowingArray(pool_), GrowingArray(pool_)});
  }
}

void BatchBuilder::begin(std::size_t n_rows) {
  SharedBlock shared;
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    if (is_dense_numbers(schema_->columns[c])) shared.announce(n_rows * row_bytes_[c]);
  }
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    if (is_dense_numbers(spec)) {
      dense_[c] = shared.cut(n_rows * row_bytes_[c], pool_.get());
      continue;
    }
    Growing& growing = growing_[c];
    growing.values.clear();
    growing.offsets.clear();
    growing.row_splits.clear();
    growing.n_items = 0;
    if (holds_strings(spec)) growing.offsets.append(0);
    if (spec.layout == Layout::kRagged) growing.row_splits.append(0);
  }
}

void BatchBuilder::append_string(std::size_t column, Bytes string) {
  Growing& growing = growing_[column];
  std::uint8_t* target = growing.values.extend(string.size());
  if (!string.empty()) std::memcpy(target, string.data(), string.size());
  growing.offsets.append(static_cast<std::int64_t>(growing.values.size()));
}

void BatchBuilder::end_ragged_row(std::size_t column, std::size_t n_items) {
  Growing& growing = growing_[column];
  growing.n_items += static_cast<std::int64_t>(n_items);
  growing.row_splits.append(growing.n_items);
}

void BatchBuilder::fill_empty(std::size_t row) {
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    if (is_dense_numbers(spec)) {
      std::memset(this->row(c, row), 0, row_bytes_[c]);
    } else if (spec.layout == Layout::kRagged) {
      end_ragged_row(c, 0);
    } else {
      for (std::size_t i = 0; i < spec.n_values; ++i) append_string(c, {});
    }
  }
}

Batch BatchBuilder::finish(std::size_t n_rows) {
  SharedBlock shared;
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    if (is_dense_numbers(schema_->columns[c])) continue;
    shared.announce(growing_[c].values.size());
    shared.announce(growing_[c].offsets.size());
    shared.announce(growing_[c].row_splits.size());
  }
  const auto place = [&](GrowingArray* growing) {
    if (growing->size() > kOwnBlockBytes && growing->is_half_full()) {
      return growing->release();
    }
    Array array = shared.cut(growing->size(), pool_.get());
    growing->move_to(array.data);
    return array;
  };

  Batch batch;
  batch.n_rows = n_rows;
  batch.columns.resize(schema_->columns.size());
  std::vector<const Block*> counted;
  const auto count = [&](const Array& array) {
    const Block* block = array.block.get();
    if (block == nullptr ||
        std::find(counted.begin(), counted.end(), block) != counted.end()) {
      return;
    }
    counted.push_back(block);
    batch.n_bytes += block->size();
  };
  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    Column& column = batch.columns[c];
    if (is_dense_numbers(spec)) {
      column.values = std::exchange(dense_[c], {});
      column.n_values = n_rows * spec.n_values;
    } else {
      Growing& growing = growing_[c];
      column.n_values = holds_strings(spec)
                            ? growing.offsets.size() / sizeof(std::int64_t) - 1
                            : static_cast<std::size_t>(growing.n_items) * spec.n_values;
      column.values = place(&growing.values);
      if (holds_strings(spec)) column.offsets = place(&growing.offsets);
      if (spec.layout == Layout::kRagged)
        column.row_splits = place(&growing.row_splits);
    }
    count(column.values);
    count(column.offsets);
    count(column.row_splits);
  }
  return batch;
}

}  // namespace fastrec
