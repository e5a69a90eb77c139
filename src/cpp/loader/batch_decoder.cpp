#include "loader/batch_decoder.h"

#include <algorithm>
#include <utility>

#include "survey/advice.h"
#include "survey/foreign.h"

namespace fastrec {

BatchDecoder::BatchDecoder(std::shared_ptr<const Sources> sources,
                           const std::shared_ptr<BlockPool>& pool)
    : sources_(std::move(sources)), reader_(sources_->files) {
  for (const std::shared_ptr<const Schema>& schema : sources_->schemas) {
    states_.push_back({schema, ExampleDecoder(schema),
                       BatchBuilder(schema, pool, sources_->padded_bytes_max)});
  }
}

std::size_t BatchDecoder::schema_of(const Place& place) const {
  return states_.size() == 1 ? 0 : sources_->schema_of[place.file];
}

// Makes room for the rows of each schema. Empty rows use the schema of the last row.
void BatchDecoder::begin(std::span<const Place> places, std::size_t n_rows) {
  for (SchemaState& state : states_) state.n_rows = 0;
  for (const Place& place : places) ++states_[schema_of(place)].n_rows;
  const std::size_t last = places.empty() ? 0 : schema_of(places.back());
  states_[last].n_rows += n_rows - places.size();
  for (SchemaState& state : states_) {
    state.builder.begin(state.n_rows);
    state.n_filled = 0;
    state.rows.clear();
  }
}

void BatchDecoder::end_row(SchemaState* state, std::size_t row) const {
  ++state->n_filled;
  if (states_.size() > 1) state->rows.push_back(static_cast<std::int64_t>(row));
}

// `record` is empty if it could not be read.
Error BatchDecoder::error_of(const SchemaState& state, const Place& place,
                             const Fault& fault, Bytes record) const {
  Error of_record = explain(state.decoder, fault, record);
  Error error =
      record_error(fault, std::move(of_record.reason), place, *sources_->files);
  error.feature = std::move(of_record.feature);
  error.names = std::move(of_record.names);
  error.advice = std::move(of_record.advice);
  return error;
}

// Adds file, record and offset to an `error` about a row of a schema.
Error BatchDecoder::located(const Error& error, std::size_t schema,
                            std::span<const Place> places,
                            const std::vector<UnreadableRow>& skipped) const {
  std::uint64_t row = 0;
  auto next_skipped = skipped.begin();
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (next_skipped != skipped.end() && next_skipped->row == i) {
      ++next_skipped;
      continue;
    }
    if (schema_of(places[i]) != schema || row++ != error.record) continue;
    Error result(error.code, error.reason, sources_->files->name(places[i].file));
    result.record = places[i].record;
    result.offset = places[i].frame.offset;
    result.feature = error.feature;
    return result;
  }
  return error;  // of a padding row
}

// Decodes the record at `place`, the next one of the reader, into the next row of
// `state`. After a fault, `*record` is the record if it could be read.
Fault BatchDecoder::read_row(const Place& place, bool is_watched, SchemaState* state,
                             Bytes* record) {
  const Bytes frame =
      is_watched ? Bytes() : reader_.next_mapped(MappedPath::kMinFrameBytes);
  if (!frame.empty() &&
      state->decoder.decode_mapped(frame, state->n_filled, &state->builder)) {
    reader_.skip_mapped();
    return {};
  }
  Fault fault = reader_.next(record);
  if (fault) return fault;
  fault =
      state->decoder.decode(BytesWithSlack(*record), state->n_filled, &state->builder);
  if (!fault && state->decoder.has_found_nothing()) fault = check_example(*record);
  if (!fault && is_watched) sources_->watch->add(schema_of(place), *record);
  fault.offset += place.frame.payload();
  return fault;
}

std::span<const Column> BatchDecoder::decode_row(const Place& place) {
  const std::span<const Place> places(&place, 1);
  begin(places, 1);
  reader_.start(places);
  const std::size_t schema = schema_of(place);
  SchemaState& state = states_[schema];
  const bool is_watched = sources_->watch != nullptr && sources_->watch->is_open();
  Bytes record;
  if (const Fault fault = read_row(place, is_watched, &state, &record)) {
    throw error_of(state, place, fault, record);
  }
  reader_.trim();
  try {
    return state.builder.finish_row();
  } catch (const Error& error) {
    throw located(error, schema, places, {});
  }
}

std::vector<Part> BatchDecoder::decode(std::span<const Place> places,
                                       std::size_t n_rows, const std::uint8_t* frames,
                                       RowPolicy row_policy,
                                       std::vector<UnreadableRow>* unreadable_rows,
                                       std::vector<Part> old) {
  begin(places, n_rows);
  reader_.start(places, frames);
  SchemaState* state = &states_.front();
  std::size_t n_skipped = 0;
  const bool is_watched = sources_->watch != nullptr && sources_->watch->is_open();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    state = &states_[schema_of(place)];
    Bytes record;
    const Fault fault = read_row(place, is_watched, state, &record);
    if (fault) [[unlikely]] {
      Error error = error_of(*state, place, fault, record);
      if (row_policy == RowPolicy::kRaise || !is_of_record(fault.code)) throw error;
      unreadable_rows->push_back({i, place.frame, std::move(error)});
      state->builder.rewind(state->n_filled);
      if (row_policy == RowPolicy::kSkip) {
        ++n_skipped;
        continue;
      }
      state->builder.fill_empty(state->n_filled);
    }
    end_row(state, i - n_skipped);
  }
  reader_.trim();
  for (std::size_t i = places.size(); i < n_rows; ++i) {
    state->builder.fill_empty(state->n_filled);
    end_row(state, i - n_skipped);
  }

  std::vector<Part> parts = std::move(old);
  std::size_t n_parts = 0;
  const auto finish = [&](std::size_t schema) {
    if (n_parts == parts.size()) parts.emplace_back();
    SchemaState& finished = states_[schema];
    Part& part = parts[n_parts++];
    part.schema = schema;
    part.batch = finished.builder.finish(finished.n_filled, std::move(part.batch));
    part.rows.swap(finished.rows);
  };
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].n_filled == 0) continue;
    try {
      finish(i);
    } catch (const Error& error) {
      const bool skips = row_policy == RowPolicy::kSkip;
      throw located(error, i, places,
                    skips ? *unreadable_rows : std::vector<UnreadableRow>());
    }
  }
  if (n_parts == 0) finish(0);
  parts.resize(n_parts);
  if (parts.size() == 1) parts[0].rows.clear();
  return parts;
}

}  // namespace fastrec
