#include "decode/decode.h"

#include <algorithm>
#include <utility>

#include "decode/sequence.h"

namespace fastrec {
namespace {

// An absent feature is a null view, which no part of a record is.
bool is_absent(Bytes feature) { return feature.data() == nullptr; }

// Replaces the null view of an entry without a value: the entry is not absent.
Bytes present(Bytes value) {
  static constexpr std::uint8_t kNothing[1] = {};
  return value.data() != nullptr ? value : Bytes(kNothing, 0);
}

bool is_in_lists(const ColumnSpec& spec) {
  return spec.section == Section::kLists || spec.section == Section::kStepSizes;
}

// Returns a callback that stores the values of `keys` in `*found` by key number, and
// ignores other keys. Clears `*found`.
auto collector(const KeyTable& keys, std::vector<Bytes>* found) {
  std::fill(found->begin(), found->end(), Bytes());
  return [&keys, found, guess = std::uint32_t{0}](Bytes key, Bytes value) mutable {
    const std::uint32_t number = keys.find(key, guess);
    if (number == KeyTable::kNone) return;
    guess = number + 1;
    (*found)[number] = present(value);
  };
}

}  // namespace

ColumnKeys::ColumnKeys(const Schema& schema, bool of_lists) {
  for (const ColumnSpec& spec : schema.columns) {
    key_of_.push_back(is_in_lists(spec) == of_lists ? table_.insert(spec.key)
                                                    : KeyTable::kNone);
  }
}

ExampleDecoder::ExampleDecoder(std::shared_ptr<const Schema> schema)
    : schema_(std::move(schema)),
      decoder_(schema_),
      keys_(*schema_, false),
      list_keys_(*schema_, true),
      features_(keys_.table().size()),
      lists_(list_keys_.table().size()),
      can_be_fast_(ColumnLookup::can_hold(*schema_)) {
  for (const ColumnSpec& spec : schema_->columns) {
    if (spec.layout == Layout::kRecord) continue;
    reads_features_ = true;
    reads_example_ = reads_example_ || spec.section == Section::kFeatures;
  }
  if (SequencePath::can_read(*schema_)) sequence_path_.emplace(*schema_);
}

void ExampleDecoder::begin_record() {
  has_found_nothing_ = false;
  decoder_.begin();
}

// Finds the requested features and feature lists of `record`.
Fault ExampleDecoder::walk(Bytes record) {
  auto on_feature = collector(keys_.table(), &features_);
  if (lists_.empty()) return walk_features(record, decoder_.joined(), on_feature);

  auto on_list = collector(list_keys_.table(), &lists_);
  return walk_maps<2>(record, decoder_.joined(),
                      [&](std::uint32_t field, Bytes key, Bytes value) {
                        field == 1 ? on_feature(key, value) : on_list(key, value);
                      });
}

Fault ExampleDecoder::decode(BytesWithSlack record, std::size_t row,
                             BatchBuilder* batch) {
  if (fast_path_ || sequence_path_) {
    begin_record();
    if (fast_path_ ? fast_path_->decode(record, row, &decoder_, batch)
                   : sequence_path_->decode(record, row, &decoder_, batch)) {
      return check_rules(*schema_, *batch, &step_begins_);
    }
    batch->rewind(row);
  } else if (can_be_fast_) {
    // For the next record: building it does not pay for a single one.
    fast_path_ = std::make_unique<FastPath>(*schema_);
  }
  return decode_by(&FeatureDecoder::decode, record.bytes(), row, batch);
}

Fault ExampleDecoder::decode_any(BytesWithSlack record, std::size_t row,
                                 BatchBuilder* batch) {
  return decode_by(&FeatureDecoder::decode_any, record.bytes(), row, batch);
}

Fault ExampleDecoder::decode_by(DecodeFeature decode_feature, Bytes record,
                                std::size_t row, BatchBuilder* batch) {
  begin_record();
  Fault fault;
  if (reads_features_) fault = walk(record);
  if (fault) return fault;
  // FastPath reads only records with a single field, so not those with lists.
  if (reads_example_ && has_feature_lists(record)) return {.code = Errc::kSequence};
  has_found_nothing_ = reads_features_ && std::ranges::all_of(features_, is_absent) &&
                       std::ranges::all_of(lists_, is_absent);

  for (std::size_t c = 0; c < schema_->columns.size(); ++c) {
    const ColumnSpec& spec = schema_->columns[c];
    if (spec.layout == Layout::kRecord) {
      batch->append_string(c, record);
      continue;
    }
    if (spec.section == Section::kStepSizes)
      continue;  // decoded with its kLists column
    const Bytes feature = spec.section == Section::kLists ? lists_[list_keys_.key_of(c)]
                                                          : features_[keys_.key_of(c)];
    if (spec.section == Section::kLists) {
      fault = is_absent(feature) && spec.is_required
                  ? Fault{.code = Errc::kFeatureMissing}
                  : decode_steps(*schema_, c, feature, {}, decoder_.joined(), batch);
    } else {
      fault = is_absent(feature) ? decoder_.fill_missing(c, row, batch)
                                 : (decoder_.*decode_feature)(c, feature, row, batch);
    }
    if (fault) return of_column(located(fault, feature, record), c);
  }
  return check_rules(*schema_, *batch, &step_begins_);
}

bool ExampleDecoder::decode_pair(BytesWithSlack first, BytesWithSlack second,
                                 std::size_t row, BatchBuilder* batch) {
  // Rules are checked after each row.
  if (!fast_path_ || !schema_->rules.empty()) return false;
  if (!fast_path_->decode_pair(first, second, row, batch)) return false;
  has_found_nothing_ = false;
  return true;
}

bool ExampleDecoder::decode_shared(Bytes frame, bool is_framed, std::size_t row,
                                   BatchBuilder* batch) {
  if (!can_be_fast_) return false;
  if (!mapped_path_) mapped_path_ = std::make_unique<MappedPath>(*schema_);
  if (!mapped_path_->tries_next()) return false;
  begin_record();
  if (mapped_path_->decode(frame, is_framed, row, &decoder_, batch) &&
      !check_rules(*schema_, *batch, &step_begins_)) {
    return true;
  }
  batch->rewind(row);
  return false;
}

}  // namespace fastrec
