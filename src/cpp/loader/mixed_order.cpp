#include "loader/mixed_order.h"

#include <cmath>
#include <utility>

#include "base/random.h"

namespace fastrec {
namespace {

// floor(n * share + offset), with share and offset in units of 2^-64.
std::uint64_t portion(std::uint64_t n, std::uint64_t share,
                      std::uint64_t offset) noexcept {
  const bool carries = n * share + offset < offset;
  return multiply_high(n, share) + carries;
}

std::uint64_t fixed_point(double share) {
  const double scaled = std::ldexp(share, 64);
  constexpr double kMax = 18446744073709549568.0;  // the last double below 2^64
  return static_cast<std::uint64_t>(std::fmin(scaled, kMax));
}

}  // namespace

MixedOrder::MixedOrder(std::vector<MixComponent> components, std::uint64_t length,
                       std::uint64_t run, std::uint64_t draw_seed, std::uint64_t seed,
                       std::uint64_t epoch)
    : components_(std::move(components)),
      length_(length),
      run_(run),
      seed_(seed),
      first_draw_(epoch * ((length + run - 1) / run)),
      orders_(components_.size()) {
  std::uint64_t n_records = 0;
  for (const MixComponent& component : components_) {
    first_records_.push_back(n_records);
    n_records += component.n_records;
  }
  KeyStream offsets(key_of(draw_seed, 0, 0));
  split(0, components_.size(), &offsets);
}

void MixedOrder::split(std::size_t begin, std::size_t end, KeyStream* offsets) {
  if (end - begin < 2) return;
  const std::size_t middle = begin + (end - begin) / 2;
  double left = 0, all = 0;
  for (std::size_t i = begin; i < end; ++i) {
    all += components_[i].weight;
    if (i < middle) left += components_[i].weight;
  }
  nodes_.push_back({middle - begin, fixed_point(left / all), offsets->next()});
  split(begin, middle, offsets);
  split(middle, end, offsets);
}

MixedOrder::Draw MixedOrder::draw(std::uint64_t number) const noexcept {
  std::size_t begin = 0, end = components_.size(), at = 0;
  while (end - begin > 1) {
    const Node& node = nodes_[at];
    const std::uint64_t n_before = portion(number, node.share, node.offset);
    const bool is_left = portion(number + 1, node.share, node.offset) > n_before;
    // A side of n components has n - 1 nodes.
    if (is_left) {
      end = begin + node.n_left;
      at += 1;
      number = n_before;
    } else {
      begin += node.n_left;
      at += node.n_left;
      number -= n_before;
    }
  }
  return {begin, number};
}

std::shared_ptr<const Order> MixedOrder::order_of(std::size_t component,
                                                  std::uint64_t epoch) const {
  const std::lock_guard lock(mutex_);
  EpochOrder& cached = orders_[component];
  if (!cached.order || cached.epoch != epoch) {
    const MixComponent& of = components_[component];
    cached = {epoch, make_order(of.shuffle, of.n_records, seed_, epoch, 1 + component)};
  }
  return cached.order;
}

// Resolves positions of the mix, and caches the orders of the components.
class MixedOrder::PositionResolver {
 public:
  explicit PositionResolver(const MixedOrder* mix)
      : mix_(mix), orders_(mix->components_.size()) {}

  ComponentPosition resolve(std::uint64_t position) {
    const std::uint64_t run = mix_->run_;
    const Draw drawn = mix_->draw(mix_->first_draw_ + position / run);
    const std::uint64_t n_records = mix_->components_[drawn.component].n_records;
    const std::uint64_t number = drawn.number * run + position % run;
    const std::uint64_t epoch = number / n_records;
    EpochOrder& cached = orders_[drawn.component];
    if (!cached.order || cached.epoch != epoch) {
      cached = {epoch, mix_->order_of(drawn.component, epoch)};
    }
    return {drawn.component, number % n_records, cached.order.get()};
  }

 private:
  const MixedOrder* mix_;
  std::vector<EpochOrder> orders_;
};

void MixedOrder::to_records(std::span<std::uint64_t> positions) const {
  PositionResolver resolver(this);
  for (std::uint64_t& position : positions) {
    const ComponentPosition found = resolver.resolve(position);
    position = found.position;
    found.order->to_records({&position, 1});
    position += first_records_[found.component];
  }
}

void MixedOrder::upcoming(std::span<const std::uint64_t> positions,
                          std::vector<RecordRange>* ranges) const {
  PositionResolver resolver(this);
  for (const std::uint64_t position : positions) {
    const ComponentPosition found = resolver.resolve(position);
    const std::size_t n_before = ranges->size();
    found.order->upcoming({&found.position, 1}, ranges);
    for (std::size_t i = n_before; i < ranges->size(); ++i) {
      (*ranges)[i].first += first_records_[found.component];
    }
  }
}

}  // namespace fastrec
