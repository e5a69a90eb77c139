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

std::size_t BatchDecoder::schema_of(std::size_t file) const {
  return states_.size() == 1 ? 0 : sources_->schema_of[file];
}

// Makes room for the rows of each schema. Empty rows use the schema of the last row.
void BatchDecoder::begin(const FrameRuns& frames, std::size_t n_rows) {
  for (SchemaState& state : states_) state.n_rows = state.n_bytes = 0;
  std::size_t last = 0;
  for (const FrameRun& run : frames.runs) {
    last = schema_of(run.file);
    states_[last].n_rows += run.count;
    states_[last].n_bytes += static_cast<std::size_t>(run.n_bytes());
  }
  states_[last].n_rows += n_rows - frames.size();
  for (SchemaState& state : states_) {
    state.builder.begin(state.n_rows, state.n_bytes);
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
  Error of_record = explain(*state.schema, fault, record);
  Error error =
      record_error(fault, std::move(of_record.reason), place, *sources_->files);
  error.feature = std::move(of_record.feature);
  error.names = std::move(of_record.names);
  error.advice = std::move(of_record.advice);
  error.misread = std::move(of_record.misread);
  return error;
}

// Adds file, record and offset to an `error` about a row of a schema.
Error BatchDecoder::located(const Error& error, std::size_t schema,
                            const FrameRuns& frames,
                            const std::vector<UnreadableRow>& skipped) const {
  std::uint64_t row = 0;
  auto next_skipped = skipped.begin();
  PlaceCursor places(&frames);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (next_skipped != skipped.end() && next_skipped->row == i) {
      ++next_skipped;
      continue;
    }
    const Place place = places.at(i);
    if (schema_of(place.file) != schema || row++ != error.record) continue;
    Error result(error.code, error.reason, sources_->files->name(place.file));
    result.record = place.record;
    result.offset = place.frame.offset;
    result.feature = error.feature;
    return result;
  }
  return error;  // of a padding row
}

Fault BatchDecoder::decode_record(Bytes record, bool is_watched, std::size_t schema) {
  SchemaState& state = states_[schema];
  Fault fault =
      state.decoder.decode(BytesWithSlack(record), state.n_filled, &state.builder);
  if (!fault && state.decoder.has_found_nothing()) fault = check_example(record);
  if (!fault && is_watched) sources_->watch->add(schema, record);
  return fault;
}

// Decodes each record into the next row of its schema. Returns the number of rows. For
// record i with a fault, `on_fault(i, place, error, state)` returns whether it has a row.
template <typename OnFault>
std::size_t BatchDecoder::decode_rows(const FrameRuns& frames,
                                      std::span<const RowRange> rows,
                                      const std::uint8_t* bytes,
                                      const OnFault& on_fault) {
  reader_.start(frames, bytes);
  const bool is_watched = sources_->watch != nullptr && sources_->watch->is_open();
  const bool has_rows = !rows.empty();
  PlaceCursor places(&frames);
  std::size_t i = 0, n_rows = 0;
  const auto next_schema = [&] {
    return states_.size() == 1 ? 0 : schema_of(places.at(i).file);
  };
  // `record` is empty if it could not be read.
  const auto end_record = [&](SchemaState* state, const Fault& fault, Bytes record) {
    bool has_row = true;
    if (fault) [[unlikely]] {
      const Place place = places.at(i);
      has_row = on_fault(i, place, error_of(*state, place, fault, record), state);
    }
    if (has_row) end_row(state, n_rows++);
    ++i;
  };
  while (i < frames.size()) {
    const Bytes frame =
        is_watched ? Bytes() : reader_.next_mapped(MappedPath::kMinFrameBytes);
    if (!frame.empty()) {
      SchemaState& state = states_[next_schema()];
      if (has_rows) state.builder.begin_record(rows[i].first, rows[i].last);
      if (state.decoder.decode_mapped(frame, state.n_filled, &state.builder)) {
        if (has_rows) state.builder.trim_lists(state.n_filled);
        reader_.skip_mapped();
        end_record(&state, {}, {});
        continue;
      }
    }
    VerifiedBlock block;
    if (const Fault fault = reader_.next_block(&block)) {
      end_record(&states_[next_schema()], fault, {});
    }
    while (!block.empty()) {
      if (states_.size() == 1 && !is_watched && !has_rows && block.lengths.size() > 1) {
        SchemaState& state = states_.front();
        VerifiedBlock rest = block;
        const BytesWithSlack first(rest.pop()), second(rest.pop());
        if (state.decoder.decode_pair(first, second, state.n_filled, &state.builder)) {
          end_record(&state, {}, {});
          end_record(&state, {}, {});
          block = rest;
          continue;
        }
      }
      const Bytes record = block.pop();
      const std::size_t schema = next_schema();
      BatchBuilder& builder = states_[schema].builder;
      if (has_rows) builder.begin_record(rows[i].first, rows[i].last);
      Fault fault = decode_record(record, is_watched, schema);
      if (has_rows && !fault) builder.trim_lists(states_[schema].n_filled);
      if (fault) fault.offset += places.at(i).frame.payload();
      end_record(&states_[schema], fault, record);
    }
  }
  reader_.trim();
  return n_rows;
}

std::span<const Column> BatchDecoder::decode_row(const Place& place) {
  one_frame_.clear();
  one_frame_.add(place);
  begin(one_frame_, 1);
  decode_rows(one_frame_, {}, nullptr,
              [](std::size_t, const Place&, Error error, SchemaState*) -> bool {
                throw error;
              });
  const std::size_t schema = schema_of(place.file);
  try {
    return states_[schema].builder.finish_row();
  } catch (const Error& error) {
    throw located(error, schema, one_frame_, {});
  }
}

std::vector<Part> BatchDecoder::decode(const FrameRuns& frames, std::size_t n_rows,
                                       std::span<const RowRange> rows,
                                       const std::uint8_t* bytes, RowPolicy row_policy,
                                       std::vector<UnreadableRow>* unreadable_rows,
                                       std::vector<Part> old) {
  begin(frames, n_rows);
  std::size_t row = decode_rows(
      frames, rows, bytes,
      [&](std::size_t i, const Place& place, Error error, SchemaState* state) {
        if (row_policy == RowPolicy::kRaise || !is_of_record(error.code)) throw error;
        unreadable_rows->push_back({i, place.frame, std::move(error)});
        state->builder.rewind(state->n_filled);
        if (row_policy == RowPolicy::kSkip) return false;
        state->builder.fill_empty(state->n_filled);
        return true;
      });
  const std::size_t last = frames.runs.empty() ? 0 : schema_of(frames.runs.back().file);
  for (std::size_t i = frames.size(); i < n_rows; ++i) {
    states_[last].builder.fill_empty(states_[last].n_filled);
    end_row(&states_[last], row++);
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
      throw located(error, i, frames,
                    skips ? *unreadable_rows : std::vector<UnreadableRow>());
    }
  }
  if (n_parts == 0) finish(0);
  parts.resize(n_parts);
  if (parts.size() == 1) parts[0].rows.clear();
  return parts;
}

}  // namespace fastrec
