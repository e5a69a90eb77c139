// MixedOrder: several data sets drawn from in proportion to weights.
//
// A position of the mix is a position of one component. Both follow without memory or
// replay from a binary tree that splits the components:
//
//   n -> left, number floor(n * a)        if floor((n + 1) * a) > floor(n * a)
//        right, number n - floor(n * a)   otherwise
//
// where `a` is the weight of the left side as a fraction of the weight of both.
//
// So at every node, and for every component, the number of draws among the first n is
// within a constant of its weight times n. (The seed shifts each node's pattern by a
// fraction of a draw.)
//
// A component is read epoch after epoch, each in its own order. It continues through
// the epochs of the mix.
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
  // Records of the components are numbered one after another. `run` positions are drawn
  // from one component before the next draw. `draw_seed` is for the draws, `seed` for
  // the orders of the components.
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
    std::uint64_t share = 0;   // of the left side, in 2^-64
    std::uint64_t offset = 0;  // added before rounding, in 2^-64
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

  // Where a position is in a component, and the order that holds there.
  struct Found {
    std::size_t component = 0;
    std::uint64_t position = 0;
    const Order* order = nullptr;
  };
  class Finder;

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
  mutable std::vector<EpochOrder> orders_;  // by component: the one used last
};

}  // namespace fastrec
