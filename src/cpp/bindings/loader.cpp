#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/process.h"
#include "base/random.h"
#include "bindings/bindings.h"
#include "loader/batch_decoder.h"
#include "loader/mixed_order.h"
#include "loader/order.h"
#include "loader/pipeline.h"
#include "loader/walked_claims.h"
#include "loader/window.h"

namespace fastrec {
namespace {

using Numbers = py::array_t<std::int64_t, py::array::c_style>;

// Sources, and the schemas that turn their parts into arrays.
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
      throw py::value_error("each file must have one of the schemas");
    }
    for (const std::size_t schema : sources.schema_of) {
      if (schema >= n) throw py::value_error("each file must have one of the schemas");
    }
    sources.watch = std::make_shared<KeyWatch>(sources.schemas);
    sources_ = std::make_shared<const Sources>(std::move(sources));
  }

  const std::shared_ptr<const Sources>& sources() const noexcept { return sources_; }

  bool is_watching() const noexcept { return sources_->watch->is_pending(); }

  // [(schema, column, records, names)]: see KeyWatch::take().
  py::list take_absent(std::uint64_t n_delivered,
                       std::optional<std::uint64_t> epoch_records) const {
    py::list result;
    for (const AbsentColumn& absent :
         sources_->watch->take(n_delivered, epoch_records)) {
      py::list names;
      for (const std::string& name : absent.names) names.append(readable(name));
      result.append(
          py::make_tuple(absent.schema, absent.column, absent.n_records, names));
    }
    return result;
  }

  // [(schema, columns, rows)]; rows is None where all rows are in one part.
  // The arrays take the blocks of the parts.
  py::list arrays(std::vector<Part>* parts) const {
    py::list result;
    for (Part& part : *parts) {
      py::object rows = py::none();
      if (!part.rows.empty()) {
        rows = py::array_t<std::int64_t>(static_cast<py::ssize_t>(part.rows.size()),
                                         part.rows.data());
      }
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

// The frames of rows that cannot be read, as SkippedSpan.
py::list skipped_spans(const std::vector<Damage>& damages) {
  py::list list;
  for (const Damage& damage : damages) {
    py::dict fields;
    fields["records"] = 1;
    fields["row"] = damage.row;
    list.append(
        skipped_span(damage.frame.offset, damage.frame.end(), damage.error, fields));
  }
  return list;
}

// A pipeline as Python holds it: it ends without the GIL, and not at all in a process
// that was forked, where its threads do not exist and its locks may be held for ever.
class BoundPipeline {
 public:
  BoundPipeline(std::unique_ptr<Pipeline> pipeline, py::object sources,
                std::shared_ptr<BlockPool> pool)
      : pipeline_(std::move(pipeline)),
        sources_(std::move(sources)),
        pool_(std::move(pool)),
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

  // (parts, step, rows, rows that are records, bytes of memory, damages), or None at
  // the end. A batch is lost if a signal handler raises in the Python code that wraps
  // its arrays: the caller then opens another pipeline at its step.
  py::object next() {
    check_process(process_id_);
    Delivery delivery = std::move(last_);
    if (!wait(&delivery)) return py::none();
    last_ = std::move(delivery);
    return py::make_tuple(sources_.cast<const BoundSources&>().arrays(&last_.parts),
                          last_.step, last_.n_rows, last_.n_valid, last_.n_bytes,
                          skipped_spans(last_.damages));
  }

  // An int64 array of shape (records, 4) for the batch that next() returned: file,
  // record in the file, and where its frame begins and ends.
  Numbers places() const {
    Numbers array({static_cast<py::ssize_t>(last_.places.size()), py::ssize_t{4}});
    std::int64_t* out = array.mutable_data();
    for (const Place& place : last_.places) {
      *out++ = static_cast<std::int64_t>(place.file);
      *out++ = static_cast<std::int64_t>(place.record);
      *out++ = static_cast<std::int64_t>(place.frame.offset);
      *out++ = static_cast<std::int64_t>(place.frame.end());
    }
    return array;
  }

  std::int64_t helping_ns() const noexcept { return pipeline_->helping().count(); }

  // [(begin, end, the exception)]: the bytes of files that were skipped since the last
  // call.
  py::list take_gaps() { return to_list(pipeline_->take_gaps()); }

  void stop() {
    if (process_id() != process_id_) return;
    const py::gil_scoped_release released;
    pipeline_->stop();
  }

 private:
  // Waits for the next batch; returns false at the end.
  bool wait(Delivery* delivery) {
    // How often signals are checked while other threads decode.
    constexpr std::chrono::milliseconds kPatience(50);
    pool_->replenish();
    while (true) {
      Pipeline::Outcome outcome;
      {
        const py::gil_scoped_release released;
        outcome = pipeline_->next(kPatience, delivery);
      }
      switch (outcome) {
        case Pipeline::Outcome::kBatch:
          return true;
        case Pipeline::Outcome::kEnd:
          return false;
        case Pipeline::Outcome::kPending:
          if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      }
    }
  }

  std::unique_ptr<Pipeline> pipeline_;
  py::object sources_;
  std::shared_ptr<BlockPool> pool_;
  Delivery last_;  // what next() returned last, without its blocks
  int process_id_;
};

std::unique_ptr<BoundPipeline> make_pipeline(
    const py::object& sources, std::shared_ptr<const Catalog> catalog,
    std::shared_ptr<const Order> order, const StepGrid& grid, std::uint64_t first_step,
    std::shared_ptr<BlockPool> pool, unsigned n_threads, unsigned n_cpus,
    std::size_t prefetch, std::size_t memory_limit, OnDamage on_damage,
    Recovery recovery) {
  const std::shared_ptr<const Sources>& of_core =
      sources.cast<const BoundSources&>().sources();
  std::unique_ptr<Claims> claims;
  if (catalog) {
    claims = std::make_unique<IndexedClaims>(of_core->files, std::move(catalog),
                                             std::move(order), grid, first_step);
  } else {
    claims = std::make_unique<WalkedClaims>(of_core->files, grid, recovery, first_step);
  }
  return std::make_unique<BoundPipeline>(
      std::make_unique<Pipeline>(
          std::move(claims), of_core, pool,
          PipelineOptions{n_threads, n_cpus, prefetch, memory_limit, true, on_damage}),
      sources, pool);
}

// A pipeline over streams. `window` is (slots, seed, epoch, stream), or None.
std::unique_ptr<BoundPipeline> make_stream_pipeline(
    const py::object& sources, std::shared_ptr<ByteStreams> streams,
    std::vector<std::size_t> order, const StepGrid& grid, bool is_counted,
    std::uint64_t first_step, std::uint64_t first_position, std::uint64_t bytes_max,
    const std::optional<
        std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>>& window,
    std::shared_ptr<BlockPool> pool, unsigned n_threads, std::size_t prefetch,
    std::size_t memory_limit, OnDamage on_damage, Recovery recovery) {
  std::optional<WindowDraws> draws;
  if (window) {
    const auto [n_slots, seed, epoch, of] = *window;
    draws.emplace(n_slots, key_of(seed, epoch, of));
  }
  const std::shared_ptr<const Sources>& of_core =
      sources.cast<const BoundSources&>().sources();
  auto claims = std::make_unique<StreamClaims>(
      FrameStream(std::move(streams), of_core->files, std::move(order), {}, recovery),
      StreamShape{grid, is_counted, first_step, first_position, bytes_max}, draws);
  return std::make_unique<BoundPipeline>(
      std::make_unique<Pipeline>(std::move(claims), of_core, pool,
                                 PipelineOptions{.n_threads = n_threads,
                                                 .prefetch = prefetch,
                                                 .memory_limit = memory_limit,
                                                 .is_helping = false,
                                                 .on_damage = on_damage}),
      sources, pool);
}

// (parts, damages).
py::tuple decode_records(const BoundSources& sources, const Catalog& catalog,
                         std::shared_ptr<BlockPool> pool, const RecordNumbers& numbers,
                         std::size_t n_rows, OnDamage on_damage) {
  const std::vector<Place> places = places_of(catalog, numbers);
  std::vector<Part> parts;
  std::vector<Damage> damages;
  pool->replenish();
  {
    const py::gil_scoped_release released;
    BatchDecoder decoder(sources.sources(), std::move(pool));
    parts = decoder.decode(places, std::max(n_rows, places.size()), nullptr, on_damage,
                           &damages);
  }
  return py::make_tuple(sources.arrays(&parts), skipped_spans(damages));
}

std::vector<std::uint64_t> from_array(const Numbers& numbers) {
  return {numbers.data(), numbers.data() + numbers.size()};
}

Numbers to_array(const std::vector<std::uint64_t>& numbers) {
  Numbers array(static_cast<py::ssize_t>(numbers.size()));
  std::copy(numbers.begin(), numbers.end(), array.mutable_data());
  return array;
}

Numbers records_at(const Order& order, const Numbers& positions) {
  std::vector<std::uint64_t> numbers = from_array(positions);
  for (const std::uint64_t position : numbers) {
    if (position >= order.size()) {
      throw py::index_error("position " + std::to_string(position) +
                            " is not among the " + std::to_string(order.size()) +
                            " of an epoch");
    }
  }
  {
    const py::gil_scoped_release released;
    order.to_records(numbers);
  }
  return to_array(numbers);
}

std::shared_ptr<const Order> mixed_order(
    const std::vector<std::tuple<std::uint64_t, double, Shuffle>>& components,
    std::uint64_t length, std::uint64_t run, std::uint64_t draw_seed,
    std::uint64_t seed, std::uint64_t epoch) {
  std::vector<MixComponent> of_core;
  for (const auto& [n_records, weight, shuffle] : components) {
    of_core.push_back({n_records, weight, shuffle});
  }
  return std::make_shared<MixedOrder>(std::move(of_core), length, run, draw_seed, seed,
                                      epoch);
}

void check_step(const StepGrid& grid, std::uint64_t step) {
  if (step < grid.n_steps()) return;
  throw py::index_error("step " + std::to_string(step) + " is not among the " +
                        std::to_string(grid.n_steps()) + " of an epoch");
}

void register_order(py::module_& m) {
  py::class_<Shuffle>(m, "Shuffle")
      .def_static("sequential",
                  [] { return Shuffle{.kind = Shuffle::Kind::kSequential}; })
      .def_static("shuffled", [] { return Shuffle{.kind = Shuffle::Kind::kShuffled}; })
      .def_static(
          "blocks",
          [](std::uint64_t block_records, std::uint64_t n_lanes) {
            return Shuffle{Shuffle::Kind::kBlocks, block_records, n_lanes};
          },
          py::arg("block_records"), py::arg("n_lanes"));

  py::class_<Order, std::shared_ptr<Order>>(m, "Order")
      .def_static(
          "of",
          [](const Shuffle& shuffle, std::uint64_t n_records, std::uint64_t seed,
             std::uint64_t epoch, std::uint64_t stream) {
            return std::const_pointer_cast<Order>(
                make_order(shuffle, n_records, seed, epoch, stream));
          },
          py::arg("shuffle"), py::arg("n_records"), py::arg("seed"), py::arg("epoch"),
          py::arg("stream") = 0)
      .def_static(
          "listed",
          [](const Numbers& records) -> std::shared_ptr<Order> {
            return std::make_shared<ListedOrder>(from_array(records));
          },
          py::arg("records"))
      .def_static(
          "mixed",
          [](const std::vector<std::tuple<std::uint64_t, double, Shuffle>>& components,
             std::uint64_t length, std::uint64_t run, std::uint64_t draw_seed,
             std::uint64_t seed, std::uint64_t epoch) {
            return std::const_pointer_cast<Order>(
                mixed_order(components, length, run, draw_seed, seed, epoch));
          },
          py::arg("components"), py::arg("length"), py::arg("run"),
          py::arg("draw_seed"), py::arg("seed"), py::arg("epoch"))
      .def_static(
          "window",
          [](const Numbers& firsts, const Numbers& counts, std::uint64_t n_slots,
             std::uint64_t seed, std::uint64_t epoch,
             std::uint64_t stream) -> std::shared_ptr<Order> {
            const std::vector<std::uint64_t> begins = from_array(firsts);
            const std::vector<std::uint64_t> sizes = from_array(counts);
            if (begins.size() != sizes.size() || n_slots == 0) {
              throw py::value_error("there is no such window");
            }
            std::vector<RecordRange> runs;
            for (std::size_t i = 0; i < begins.size(); ++i) {
              runs.push_back({begins[i], sizes[i]});
            }
            return std::make_shared<WindowOrder>(std::move(runs), n_slots,
                                                 key_of(seed, epoch, stream));
          },
          py::arg("firsts"), py::arg("counts"), py::arg("n_slots"), py::arg("seed"),
          py::arg("epoch"), py::arg("stream") = 0)
      .def("__len__", &Order::size)
      .def_property_readonly("n_lanes", &Order::n_lanes)
      .def("records", &records_at, py::arg("positions"));

  py::class_<StepGrid>(m, "StepGrid")
      .def(py::init([](std::uint64_t n_positions, std::uint64_t batch_size,
                       std::uint64_t phase, bool drop_last, bool pad_last,
                       std::uint64_t rank, std::uint64_t world_size,
                       std::uint64_t n_lanes, const std::optional<Numbers>& bounds) {
             if (batch_size == 0 || phase >= batch_size || phase > n_positions ||
                 rank >= world_size || n_lanes == 0) {
               throw py::value_error("there is no such grid of steps");
             }
             return StepGrid{
                 n_positions,
                 batch_size,
                 phase,
                 drop_last,
                 pad_last,
                 rank,
                 world_size,
                 n_lanes,
                 bounds ? from_array(*bounds) : std::vector<std::uint64_t>()};
           }),
           py::kw_only(), py::arg("n_positions"), py::arg("batch_size"),
           py::arg("phase") = 0, py::arg("drop_last") = false,
           py::arg("pad_last") = false, py::arg("rank") = 0, py::arg("world_size") = 1,
           py::arg("n_lanes") = 1, py::arg("bounds") = py::none())
      .def_property_readonly("n_steps", &StepGrid::n_steps)
      .def("step_at", &StepGrid::step_at, py::arg("position"))
      .def(
          "range",
          [](const StepGrid& grid, std::uint64_t step) {
            check_step(grid, step);
            const PositionRange range = grid.range(step);
            return py::make_tuple(range.first, range.count);
          },
          py::arg("step"))
      .def(
          "positions",
          [](const StepGrid& grid, std::uint64_t step) {
            check_step(grid, step);
            std::vector<std::uint64_t> positions;
            grid.positions(step, &positions);
            return to_array(positions);
          },
          py::arg("step"))
      .def("n_rows", &StepGrid::n_rows, py::arg("step"), py::arg("n_valid"));
}

}  // namespace

void check_process(int made_by) {
  if (process_id() == made_by) return;
  PyErr_SetString(PyExc_RuntimeError,
                  "this iterator belongs to another process, which was forked: begin a "
                  "new one here");
  throw py::error_already_set();
}

void register_loader(py::module_& m) {
  register_order(m);

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
        py::arg("on_damage") = OnDamage::kRaise);

  py::class_<BoundPipeline>(m, "Pipeline")
      .def(py::init(&make_pipeline), py::arg("sources"), py::arg("catalog").none(true),
           py::arg("order").none(true), py::arg("grid"), py::arg("first_step"),
           py::arg("pool"), py::kw_only(), py::arg("n_threads"), py::arg("n_cpus"),
           py::arg("prefetch"), py::arg("memory_limit"), py::arg("on_damage"),
           py::arg("recovery"))
      .def_static("of_streams", &make_stream_pipeline, py::arg("sources"),
                  py::arg("streams"), py::arg("order"), py::arg("grid"), py::kw_only(),
                  py::arg("is_counted"), py::arg("first_step"),
                  py::arg("first_position"), py::arg("bytes_max"),
                  py::arg("window").none(true), py::arg("pool"), py::arg("n_threads"),
                  py::arg("prefetch"), py::arg("memory_limit"), py::arg("on_damage"),
                  py::arg("recovery"))
      .def("next", &BoundPipeline::next)
      .def_property_readonly("helping_ns", &BoundPipeline::helping_ns)
      .def("places", &BoundPipeline::places)
      .def("take_gaps", &BoundPipeline::take_gaps)
      .def("stop", &BoundPipeline::stop);
}

}  // namespace fastrec
