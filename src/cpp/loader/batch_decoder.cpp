#include "loader/batch_decoder.h"

#include <algorithm>
#include <utility>

#include "survey/advice.h"

namespace fastrec {

BatchDecoder::BatchDecoder(std::shared_ptr<const Sources> sources,
                           const std::shared_ptr<BlockPool>& pool)
    : sources_(std::move(sources)), reader_(sources_->files) {
  for (const std::shared_ptr<const Schema>& schema : sources_->schemas) {
    readings_.push_back({schema, ExampleDecoder(schema),
                         BatchBuilder(schema, pool, sources_->padded_bytes_max)});
  }
}

std::size_t BatchDecoder::schema_of(const Place& place) const {
  return readings_.size() == 1 ? 0 : sources_->schema_of[place.file];
}

// Makes room for as many rows as each schema will have. Empty rows belong to the schema
// of the last row.
void BatchDecoder::begin(std::span<const Place> places, std::size_t n_rows) {
  for (Reading& reading : readings_) reading.n_rows = 0;
  for (const Place& place : places) ++readings_[schema_of(place)].n_rows;
  const std::size_t last = places.empty() ? 0 : schema_of(places.back());
  readings_[last].n_rows += n_rows - places.size();
  for (Reading& reading : readings_) {
    reading.builder.begin(reading.n_rows);
    reading.n_filled = 0;
    reading.rows.clear();
  }
}

void BatchDecoder::end_row(Reading* reading, std::size_t row) const {
  ++reading->n_filled;
  if (readings_.size() > 1) reading->rows.push_back(static_cast<std::int64_t>(row));
}

// `record` is nothing if it could not be read.
Error BatchDecoder::error_of(const Reading& reading, const Place& place,
                             const Fault& fault, Bytes record) const {
  Error of_record = explain(reading.decoder, fault, record);
  Error error =
      record_error(fault, std::move(of_record.reason), place, *sources_->files);
  error.feature = std::move(of_record.feature);
  error.names = std::move(of_record.names);
  error.advice = std::move(of_record.advice);
  return error;
}

// `error` is about the row of a schema: says which record that is.
Error BatchDecoder::located(const Error& error, std::size_t schema,
                            std::span<const Place> places,
                            const std::vector<Damage>& skipped) const {
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
  return error;  // of a row that is only fill
}

std::vector<Part> BatchDecoder::decode(std::span<const Place> places,
                                       std::size_t n_rows, const std::uint8_t* frames,
                                       OnDamage on_damage, std::vector<Damage>* damages,
                                       std::vector<Part> old) {
  begin(places, n_rows);
  reader_.start(places, frames);
  Reading* reading = &readings_.front();
  std::size_t n_skipped = 0;
  const bool is_watched = sources_->watch != nullptr && sources_->watch->is_open();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    reading = &readings_[schema_of(place)];
    const Bytes frame =
        is_watched ? Bytes() : reader_.next_mapped(MappedPath::kMinFrameBytes);
    if (!frame.empty() &&
        reading->decoder.decode_mapped(frame, reading->n_filled, &reading->builder)) {
      reader_.skip_mapped();
      end_row(reading, i - n_skipped);
      continue;
    }
    Bytes record;
    Fault fault = reader_.next(&record);
    if (!fault) {
      fault = reading->decoder.decode(BytesWithSlack(record), reading->n_filled,
                                      &reading->builder);
      fault.offset += place.frame.payload();
    }
    if (fault) [[unlikely]] {
      Error error = error_of(*reading, place, fault, record);
      if (on_damage == OnDamage::kRaise || !is_of_record(fault.code)) throw error;
      damages->push_back({i, place.frame, std::move(error)});
      reading->builder.rewind(reading->n_filled);
      if (on_damage == OnDamage::kSkip) {
        ++n_skipped;
        continue;
      }
      reading->builder.fill_empty(reading->n_filled);
    } else if (is_watched) {
      sources_->watch->add(schema_of(place), record);
    }
    end_row(reading, i - n_skipped);
  }
  for (std::size_t i = places.size(); i < n_rows; ++i) {
    reading->builder.fill_empty(reading->n_filled);
    end_row(reading, i - n_skipped);
  }

  std::vector<Part> parts = std::move(old);
  std::size_t n_parts = 0;
  const auto finish = [&](std::size_t schema) {
    if (n_parts == parts.size()) parts.emplace_back();
    Reading& finished = readings_[schema];
    Part& part = parts[n_parts++];
    part.schema = schema;
    part.batch = finished.builder.finish(finished.n_filled, std::move(part.batch));
    part.rows.swap(finished.rows);
  };
  for (std::size_t i = 0; i < readings_.size(); ++i) {
    if (readings_[i].n_filled == 0) continue;
    try {
      finish(i);
    } catch (const Error& error) {
      const bool skips = on_damage == OnDamage::kSkip;
      throw located(error, i, places, skips ? *damages : std::vector<Damage>());
    }
  }
  if (n_parts == 0) finish(0);
  parts.resize(n_parts);
  if (parts.size() == 1) parts[0].rows.clear();
  return parts;
}

}  // namespace fastrec
