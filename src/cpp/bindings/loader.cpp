#include <pybind11/stl.h>

#include <chrono>
#include <optional>
#include <utility>

#include "base/process.h"
#include "bindings/bindings.h"
#include "loader/batch_decoder.h"
#include "loader/pipeline.h"

namespace fastrec {
namespace {

// A pipeline as Python holds it: it ends without the GIL, and not at all in a process
// that was forked, where its threads do not exist and its locks may be held for ever.
class BoundPipeline {
 public:
  BoundPipeline(std::unique_ptr<Pipeline> pipeline, py::object schema)
      : pipeline_(std::move(pipeline)),
        schema_(std::move(schema)),
        process_id_(process_id()) {}

  ~BoundPipeline() {
    if (process_id() != process_id_) {
      (void)pipeline_.release();
      return;
    }
    const py::gil_scoped_release released;
    pipeline_.reset();
  }
  BoundPipeline(const BoundPipeline&) = delete;
  BoundPipeline& operator=(const BoundPipeline&) = delete;

  // (arrays, step, first position, rows, bytes of memory), or None at the end.
  py::object next() {
    check_process();
    // Signals are looked at this often while other threads decode.
    constexpr std::chrono::milliseconds kPatience(50);
    Delivery delivery;
    while (true) {
      Pipeline::Outcome outcome;
      {
        const py::gil_scoped_release released;
        outcome = pipeline_->next(kPatience, &delivery);
      }
      switch (outcome) {
        case Pipeline::Outcome::kBatch:
          return py::make_tuple(
              schema_.cast<const BoundSchema&>().arrays(delivery.batch), delivery.step,
              delivery.first_position, delivery.batch.n_rows, delivery.batch.n_bytes);
        case Pipeline::Outcome::kEnd:
          return py::none();
        case Pipeline::Outcome::kPending:
          if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      }
    }
  }

  void stop() {
    if (process_id() != process_id_) return;
    const py::gil_scoped_release released;
    pipeline_->stop();
  }

 private:
  void check_process() const {
    if (process_id() == process_id_) return;
    PyErr_SetString(PyExc_RuntimeError,
                    "this iterator belongs to another process, which was forked: begin "
                    "a new one here, iter(loader)");
    throw py::error_already_set();
  }

  std::unique_ptr<Pipeline> pipeline_;
  py::object schema_;
  int process_id_;
};

std::unique_ptr<BoundPipeline> make_pipeline(std::shared_ptr<FileTable> files,
                                             std::shared_ptr<const Catalog> catalog,
                                             const py::object& schema,
                                             std::shared_ptr<BlockPool> pool,
                                             std::uint64_t batch_size, bool drop_last,
                                             unsigned n_threads, std::size_t prefetch,
                                             std::size_t memory_limit) {
  const StepGrid grid{batch_size, drop_last};
  std::unique_ptr<Claims> claims;
  if (catalog) {
    claims = std::make_unique<IndexedClaims>(std::move(catalog), grid);
  } else {
    claims = std::make_unique<WalkedClaims>(files, grid);
  }
  return std::make_unique<BoundPipeline>(
      std::make_unique<Pipeline>(std::move(claims), std::move(files),
                                 schema.cast<const BoundSchema&>().schema(),
                                 std::move(pool),
                                 PipelineOptions{n_threads, prefetch, memory_limit}),
      schema);
}

py::dict decode_records(std::shared_ptr<FileTable> files, const Catalog& catalog,
                        const BoundSchema& schema, std::shared_ptr<BlockPool> pool,
                        const RecordNumbers& numbers) {
  const std::vector<Place> places = places_of(catalog, numbers);
  Batch batch;
  {
    const py::gil_scoped_release released;
    batch =
        BatchDecoder(std::move(files), schema.schema(), std::move(pool)).decode(places);
  }
  return schema.arrays(batch);
}

}  // namespace

void register_loader(py::module_& m) {
  py::class_<BlockPool, std::shared_ptr<BlockPool>>(m, "BlockPool")
      .def(py::init<std::size_t>(), py::arg("idle_bytes_max"))
      .def("stats", [](const BlockPool& pool) {
        const BlockPool::Stats stats = pool.stats();
        return py::make_tuple(stats.n_allocated, stats.n_idle, stats.idle_bytes);
      });

  m.def("decode_records", &decode_records, py::arg("files"), py::arg("catalog"),
        py::arg("schema"), py::arg("pool"), py::arg("numbers"));

  py::class_<BoundPipeline>(m, "Pipeline")
      .def(py::init(&make_pipeline), py::arg("files"), py::arg("catalog").none(true),
           py::arg("schema"), py::arg("pool"), py::kw_only(), py::arg("batch_size"),
           py::arg("drop_last"), py::arg("n_threads"), py::arg("prefetch"),
           py::arg("memory_limit"))
      .def("next", &BoundPipeline::next)
      .def("stop", &BoundPipeline::stop);
}

}  // namespace fastrec
