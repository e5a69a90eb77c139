// MixedOrder: a mix of several datasets in proportion to weights.
//
// Each position of the mix draws one position of one component. A binary tree over the
// components computes the draw, without state or replay. Draw n of a node is
//
//    draw floor(n * a) of the left side       if floor((n + 1) * a) > floor(n * a)
//    draw n - floor(n * a) of the right side  otherwise
//
// where `a` is the weight of the left side as a fraction of the weight of both.
//
// So for every component, the number of draws among the first n is within a constant of
// its weight times n. (The seed shifts the pattern of each node by a fraction of a
// draw.)
//
// A component is read epoch after epoch, each in its own order. Its epochs continue
// across the epochs of the mix.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "loader/order.h"

namespace fastrec {

struct MixComponent {
  std::uint64_t n_records = 0;  // at least 1
  double weight = 0;            // above 0 and finite
  Shuffle shuffle;
};

class MixedOrder final : public Order {
 public:
  // The records of the components are numbered consecutively. A draw reads `run`
  // positions of its component. `draw_seed` seeds the draws, `seed` the orders of the
  // components.
  MixedOrder(std::vector<MixComponent> components, std::uint64_t length,
             std::uint64_t run, std::uint64_t draw_seed, std::uint64_t seed,
             std::uint64_t epoch);

  std::uint64_t size() const noexcept override { return length_; }
  void to_records(std::span<std::uint64_t> positions) const override;
  void upcoming(std::span<const std::uint64_t> positions,
                std::vector<RecordRange>* ranges) const override;

 private:
  struct Node {
    std::size_t n_left = 0;    // components on the left side
    std::uint64_t share = 0;   // weight of the left side, in units of 2^-64
    std::uint64_t offset = 0;  // added before rounding, in units of 2^-64
  };
  struct Draw {
    std::size_t component = 0;
    std::uint64_t number = 0;  // among the draws from this component
  };
  // The order of one epoch of a component.
  struct EpochOrder {
    std::uint64_t epoch = 0;
    std::shared_ptr<const Order> order;
  };

  // A position in an epoch of a component, and the order of that epoch.
  struct ComponentPosition {
    std::size_t component = 0;
    std::uint64_t position = 0;
    const Order* order = nullptr;
  };
  class PositionResolver;

  void split(std::size_t begin, std::size_t end, KeyStream* offsets);
  Draw draw(std::uint64_t number) const noexcept;
  std::shared_ptr<const Order> order_of(std::size_t component,
                                        std::uint64_t epoch) const;

  std::vector<MixComponent> components_;
  std::vector<std::uint64_t> first_records_;
  std::vector<Node> nodes_;  // depth first: a node, its left side, its right side
  std::uint64_t length_;
  std::uint64_t run_;
  std::uint64_t seed_;
  std::uint64_t first_draw_;  // of this epoch

  mutable std::mutex mutex_;
  mutable std::vector<EpochOrder> orders_;  // by component: the most recent one
};

}  // namespace fastrec
