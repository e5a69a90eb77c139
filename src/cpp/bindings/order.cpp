#include "loader/order.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "bindings/bindings.h"
#include "loader/mixed_order.h"
#include "loader/step_grid.h"
#include "loader/window.h"

namespace pybind11::detail {

template <>
struct type_caster<fastrec::MixComponent>
    : fastrec::TupleCaster<fastrec::MixComponent, &fastrec::MixComponent::n_records,
                           &fastrec::MixComponent::weight,
                           &fastrec::MixComponent::shuffle> {};
template <>
struct type_caster<fastrec::PositionRange>
    : fastrec::TupleCaster<fastrec::PositionRange, &fastrec::PositionRange::first,
                           &fastrec::PositionRange::count> {};

}  // namespace pybind11::detail

namespace fastrec {

std::vector<std::uint64_t> from_array(Numbers numbers) {
  return {numbers.begin(), numbers.end()};
}

namespace {

Int64Array to_array(const std::vector<std::uint64_t>& numbers) {
  Int64Array array(static_cast<py::ssize_t>(numbers.size()));
  std::copy(numbers.begin(), numbers.end(), array.mutable_data());
  return array;
}

Int64Array records_at(const Order& order, Numbers positions) {
  for (const std::int64_t position : positions) {
    if (static_cast<std::uint64_t>(position) >= order.size()) {
      throw py::index_error("position must be below " + std::to_string(order.size()) +
                            ", got " + std::to_string(position));
    }
  }
  std::vector<std::uint64_t> numbers = from_array(positions);
  without_gil([&] { order.to_records(numbers); });
  return to_array(numbers);
}

void check_step(const StepGrid& grid, std::uint64_t step) {
  if (step < grid.n_steps()) return;
  throw py::index_error("step must be below " + std::to_string(grid.n_steps()) +
                        ", got " + std::to_string(step));
}

}  // namespace

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
      .def_static("of", &make_order, py::arg("shuffle"), py::arg("n_records"),
                  py::arg("seed"), py::arg("epoch"), py::arg("stream") = 0)
      .def_static(
          "listed",
          [](Numbers records) -> std::shared_ptr<Order> {
            return std::make_shared<ListedOrder>(from_array(records));
          },
          py::arg("records"))
      .def_static(
          "mixed",
          [](std::vector<MixComponent> components, std::uint64_t length,
             std::uint64_t run, std::uint64_t draw_seed, std::uint64_t seed,
             std::uint64_t epoch) -> std::shared_ptr<Order> {
            return std::make_shared<MixedOrder>(std::move(components), length, run,
                                                draw_seed, seed, epoch);
          },
          py::arg("components"), py::arg("length"), py::arg("run"),
          py::arg("draw_seed"), py::arg("seed"), py::arg("epoch"))
      .def_static(
          "window",
          [](Numbers firsts, Numbers counts, std::uint64_t n_slots, std::uint64_t seed,
             std::uint64_t epoch, std::uint64_t stream) -> std::shared_ptr<Order> {
            if (firsts.size() != counts.size() || n_slots == 0) {
              throw py::value_error(
                  "firsts and counts must have one length, and n_slots must be "
                  "positive");
            }
            std::vector<RecordRange> runs;
            for (std::size_t i = 0; i < firsts.size(); ++i) {
              runs.push_back({static_cast<std::uint64_t>(firsts[i]),
                              static_cast<std::uint64_t>(counts[i])});
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
                       std::uint64_t n_lanes, Numbers bounds) {
             if (batch_size == 0 || phase >= batch_size || phase > n_positions ||
                 rank >= world_size || n_lanes == 0) {
               throw py::value_error("invalid arguments of StepGrid");
             }
             return StepGrid{n_positions, batch_size, phase,
                             drop_last,   pad_last,   rank,
                             world_size,  n_lanes,    from_array(bounds)};
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
            return grid.range(step);
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

}  // namespace fastrec
