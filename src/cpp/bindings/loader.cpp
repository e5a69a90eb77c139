#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/process.h"
#include "base/random.h"
#include "bindings/bindings.h"
#include "loader/batch_decoder.h"
#include "loader/pipeline.h"
#include "loader/walked_claims.h"
#include "loader/window.h"

namespace fastrec {
namespace {

// Sources, and the schemas that create the arrays of their parts.
class BoundSources {
 public:
  BoundSources(std::shared_ptr<FileTable> files, const py::list& schemas,
               std::vector<std::size_t> schema_of, std::size_t padded_bytes_max)
      : schemas_(schemas) {
    Sources sources{std::move(files), {}, std::move(schema_of), padded_bytes_max};
    for (const py::handle schema : schemas) {
      sources.schemas.push_back(schema.cast<const BoundSchema&>().schema());
    }
    const std::size_t n = sources.schemas.size();
    if (n == 0 || (n > 1 && sources.schema_of.size() != sources.files->size())) {
      throw py::value_error("schema_of must have one entry per file");
    }
    for (const std::size_t schema : sources.schema_of) {
      if (schema >= n) throw py::value_error("schema_of must index `schemas`");
    }
    sources.watch = std::make_shared<KeyWatch>(sources.schemas);
    sources_ = std::make_shared<const Sources>(std::move(sources));
  }

  const std::shared_ptr<const Sources>& sources() const noexcept { return sources_; }

  const BoundSchema& schema_of(std::size_t file) const {
    const std::size_t schema = schemas_.size() == 1 ? 0 : sources_->schema_of[file];
    return schemas_[schema].cast<const BoundSchema&>();
  }

  bool is_watching() const noexcept { return sources_->watch->is_pending(); }

  // [(schema, column, records, names)]: see KeyWatch::take_absent().
  py::list take_absent(std::uint64_t n_delivered,
                       std::optional<std::uint64_t> epoch_records) const {
    py::list result;
    for (const AbsentColumn& absent :
         sources_->watch->take_absent(n_delivered, epoch_records)) {
      result.append(py::make_tuple(absent.schema, absent.column, absent.n_records,
                                   to_texts(absent.names)));
    }
    return result;
  }

  // [(schema, columns, rows)]; rows is None if there is one part. Moves the blocks
  // of the parts to the arrays.
  py::list arrays(std::vector<Part>* parts) const {
    py::list result;
    for (Part& part : *parts) {
      py::object rows = py::none();
      if (!part.rows.empty()) rows = array_of(part.rows);
      result.append(py::make_tuple(
          part.schema,
          schemas_[part.schema].cast<const BoundSchema&>().arrays(&part.batch), rows));
    }
    return result;
  }

 private:
  std::shared_ptr<const Sources> sources_;
  py::list schemas_;
};

// A pipeline that Python owns. It is destroyed without the GIL.
class BoundPipeline {
 public:
  BoundPipeline(std::unique_ptr<Pipeline> pipeline, py::object sources,
                std::shared_ptr<BlockPool> pool)
      : pipeline_(owned_by_process(std::move(pipeline))),
        sources_(std::move(sources)),
        pool_(std::move(pool)),
        process_id_(process_id()) {}

  ~BoundPipeline() {
    const py::gil_scoped_release released;
    pipeline_.reset();
  }
  BoundPipeline(const BoundPipeline&) = delete;
  BoundPipeline& operator=(const BoundPipeline&) = delete;

  // Returns (parts, step, n_rows, n_valid, n_bytes, unreadable_rows), or None at the
  // end. A batch is lost if a signal handler raises in the Python code that wraps its
  // arrays: the caller must then open another pipeline at its step.
  py::object next() {
    check_process(process_id_);
    Delivery delivery;
    swap_last(&delivery);  // reuse its memory
    if (!wait(&delivery)) return py::none();
    py::object result = py::make_tuple(
        sources_.cast<const BoundSources&>().arrays(&delivery.parts), delivery.step,
        delivery.n_rows, delivery.n_valid, delivery.n_bytes, delivery.unreadable_rows);
    swap_last(&delivery);
    return result;
  }

  // See places_array(), for the last batch.
  Int64Array places() const {
    const std::lock_guard lock(mutex_);
    return places_array(last_.frames);
  }

  std::int64_t helping_ns() const noexcept { return pipeline_->helping().count(); }
  std::int64_t starving_ns() const noexcept { return pipeline_->starving().count(); }

  // [(begin, end, exception)]: the bytes that were skipped since the last call.
  std::vector<SkippedSpan> take_gaps() { return pipeline_->take_gaps(); }

  // [(file, offsets)]: the remote files that were walked to their end since the last
  // call, the offsets of their frames, and the end of the last one.
  py::list take_offsets() {
    py::list list;
    for (const FileOffsets& found : pipeline_->take_offsets()) {
      list.append(py::make_tuple(found.file, array_of(found.offsets)));
    }
    return list;
  }

  void stop() {
    if (process_id() != process_id_) return;
    const py::gil_scoped_release released;
    pipeline_->stop();
  }

 private:
  void swap_last(Delivery* delivery) {
    const std::lock_guard lock(mutex_);
    std::swap(last_, *delivery);
  }

  // Waits for the next batch; returns false at the end.
  bool wait(Delivery* delivery) {
    // The interval of signal checks while other threads decode.
    constexpr std::chrono::milliseconds kPatience(50);
    pool_->replenish();
    while (true) {
      switch (without_gil([&] { return pipeline_->next(kPatience, delivery); })) {
        case Pipeline::Outcome::kBatch:
          return true;
        case Pipeline::Outcome::kEnd:
          return false;
        case Pipeline::Outcome::kPending:
          if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      }
    }
  }

  std::shared_ptr<Pipeline> pipeline_;
  py::object sources_;
  std::shared_ptr<BlockPool> pool_;
  mutable std::mutex mutex_;  // several threads may be in next(), without a GIL
  Delivery last_;             // the last result of next(), without its blocks
  int process_id_;
};

std::unique_ptr<BoundPipeline> make_pipeline(
    const py::object& sources, std::shared_ptr<const Catalog> catalog,
    std::shared_ptr<const Order> order, const StepGrid& grid, std::uint64_t first_step,
    std::shared_ptr<BlockPool> pool, unsigned n_threads, unsigned n_cpus,
    std::size_t prefetch, std::size_t memory_limit, RowPolicy row_policy,
    Recovery recovery, bool is_helping) {
  const std::shared_ptr<const Sources>& core_sources =
      sources.cast<const BoundSources&>().sources();
  std::unique_ptr<Claims> claims;
  if (catalog) {
    claims = std::make_unique<IndexedClaims>(core_sources->files, std::move(catalog),
                                             std::move(order), grid, first_step);
  } else {
    claims =
        std::make_unique<WalkedClaims>(core_sources->files, grid, recovery, first_step);
  }
  return std::make_unique<BoundPipeline>(
      std::make_unique<Pipeline>(std::move(claims), core_sources, pool,
                                 PipelineOptions{n_threads, n_cpus, prefetch,
                                                 memory_limit, is_helping, row_policy}),
      sources, pool);
}

// A pipeline over streams. `window` is (n_slots, seed, epoch, stream) or None.
std::unique_ptr<BoundPipeline> make_stream_pipeline(
    const py::object& sources, std::shared_ptr<ByteStreams> streams,
    std::vector<std::size_t> order, const StepGrid& grid, bool is_counted,
    std::uint64_t first_step, std::uint64_t first_position, std::uint64_t bytes_max,
    const std::optional<
        std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>>& window,
    std::shared_ptr<BlockPool> pool, unsigned n_threads, std::size_t prefetch,
    std::size_t memory_limit, RowPolicy row_policy, Recovery recovery) {
  std::optional<WindowDraws> draws;
  if (window) {
    const auto [n_slots, seed, epoch, of] = *window;
    if (n_slots == 0) throw py::value_error("n_slots must be positive");
    draws.emplace(n_slots, key_of(seed, epoch, of));
  }
  const std::shared_ptr<const Sources>& core_sources =
      sources.cast<const BoundSources&>().sources();
  auto claims = std::make_unique<StreamClaims>(
      FrameStream(std::move(streams), core_sources->files, std::move(order), {},
                  recovery),
      grid, StreamShape{is_counted, first_step, first_position, bytes_max}, draws);
  return std::make_unique<BoundPipeline>(
      std::make_unique<Pipeline>(std::move(claims), core_sources, pool,
                                 PipelineOptions{.n_threads = n_threads,
                                                 .prefetch = prefetch,
                                                 .memory_limit = memory_limit,
                                                 .is_helping = false,
                                                 .row_policy = row_policy}),
      sources, pool);
}

// Reads single records of a dataset by number, in any thread.
class RowReader {
 public:
  RowReader(py::object sources, std::shared_ptr<const Catalog> catalog,
            std::shared_ptr<BlockPool> pool)
      : sources_(std::move(sources)),
        catalog_(std::move(catalog)),
        pool_(std::move(pool)) {}

  // Returns record `index` as a row, or None if it is out of range. Negative numbers
  // count from the end.
  py::object row(const py::int_& index) {
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    const auto n_records = static_cast<long long>(catalog_->size());
    if (overflow != 0 || number < -n_records || number >= n_records) return py::none();
    if (number < 0) number += n_records;
    const auto& sources = sources_.cast<const BoundSources&>();
    const Place place = catalog_->locate(static_cast<std::uint64_t>(number));
    const BoundSchema& schema = sources.schema_of(place.file);
    std::unique_ptr<BatchDecoder> decoder = decoders_.take();
    std::span<const Column> columns;
    std::vector<Part> parts;
    {
      const py::gil_scoped_release released;
      if (!decoder) decoder = std::make_unique<BatchDecoder>(sources.sources(), pool_);
      if (schema.maker().creates_rows()) {
        columns = decoder->decode_row(place);
      } else {
        FrameRuns frames;
        frames.add(place);
        parts = decoder->decode(frames, 1);
      }
    }
    Batch* batch = parts.empty() ? nullptr : &parts[0].batch;
    py::object row = schema.maker().row(columns, batch);
    if (place.frame.length <= IdleList<BatchDecoder>::kRecordBytesMax) {
      decoders_.put(std::move(decoder));
    }
    return row;
  }

 private:
  py::object sources_;
  std::shared_ptr<const Catalog> catalog_;
  std::shared_ptr<BlockPool> pool_;
  IdleList<BatchDecoder> decoders_;
};

// Returns (parts, unreadable_rows). If the catalog has rows, the parts have the records
// of the rows `numbers`, once, in file order.
py::tuple decode_records(const BoundSources& sources, const Catalog& catalog,
                         std::shared_ptr<BlockPool> pool, Numbers numbers,
                         std::size_t n_rows, RowPolicy row_policy) {
  FrameRuns frames;
  std::vector<RowRange> rows;
  if (catalog.has_rows()) {
    catalog.locate_records(from_array(numbers), &frames, &rows);
    n_rows = frames.size();
  } else {
    frames = frames_of(catalog, numbers);
  }
  std::vector<UnreadableRow> unreadable_rows;
  pool->replenish();
  std::vector<Part> parts = without_gil([&] {
    BatchDecoder decoder(sources.sources(), std::move(pool));
    return decoder.decode(frames, std::max(n_rows, frames.size()), rows, nullptr,
                          row_policy, &unreadable_rows);
  });
  return py::make_tuple(sources.arrays(&parts), unreadable_rows);
}

}  // namespace

void check_process(int creator) {
  if (process_id() == creator) return;
  PyErr_SetString(PyExc_RuntimeError,
                  "cannot use an iterator of the parent process after a fork; create a "
                  "new one in this process");
  throw py::error_already_set();
}

void register_loader(py::module_& m) {
  py::class_<BoundSources>(m, "Sources")
      .def(py::init<std::shared_ptr<FileTable>, const py::list&,
                    std::vector<std::size_t>, std::size_t>(),
           py::arg("files"), py::arg("schemas"), py::arg("schema_of"),
           py::arg("padded_bytes_max"))
      .def_property_readonly("is_watching", &BoundSources::is_watching)
      .def("take_absent", &BoundSources::take_absent, py::arg("n_delivered"),
           py::arg("epoch_records"));

  m.def("decode_records", &decode_records, py::arg("sources"), py::arg("catalog"),
        py::arg("pool"), py::arg("numbers"), py::arg("n_rows") = 0,
        py::arg("row_policy") = RowPolicy::kRaise);

  py::class_<RowReader>(m, "RowReader")
      .def(py::init<py::object, std::shared_ptr<const Catalog>,
                    std::shared_ptr<BlockPool>>(),
           py::arg("sources"), py::arg("catalog"), py::arg("pool"))
      .def("row", &RowReader::row, py::arg("number"));

  py::class_<BoundPipeline>(m, "Pipeline")
      .def(py::init(&make_pipeline), py::arg("sources"), py::arg("catalog").none(true),
           py::arg("order").none(true), py::arg("grid"), py::arg("first_step"),
           py::arg("pool"), py::kw_only(), py::arg("n_threads"), py::arg("n_cpus"),
           py::arg("prefetch"), py::arg("memory_limit"), py::arg("row_policy"),
           py::arg("recovery"), py::arg("is_helping") = true)
      .def_static("of_streams", &make_stream_pipeline, py::arg("sources"),
                  py::arg("streams"), py::arg("order"), py::arg("grid"), py::kw_only(),
                  py::arg("is_counted"), py::arg("first_step"),
                  py::arg("first_position"), py::arg("bytes_max"),
                  py::arg("window").none(true), py::arg("pool"), py::arg("n_threads"),
                  py::arg("prefetch"), py::arg("memory_limit"), py::arg("row_policy"),
                  py::arg("recovery"))
      .def("next", &BoundPipeline::next)
      .def_property_readonly("helping_ns", &BoundPipeline::helping_ns)
      .def_property_readonly("starving_ns", &BoundPipeline::starving_ns)
      .def("places", &BoundPipeline::places)
      .def("take_gaps", &BoundPipeline::take_gaps)
      .def("take_offsets", &BoundPipeline::take_offsets)
      .def("stop", &BoundPipeline::stop);
}

}  // namespace fastrec
