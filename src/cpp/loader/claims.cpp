#include "loader/claims.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <span>
#include <utility>

#include "record/framing.h"

namespace fastrec {

void GapList::add(std::vector<Gap> gaps) {
  const std::lock_guard lock(mutex_);
  std::move(gaps.begin(), gaps.end(), std::back_inserter(gaps_));
}

std::vector<Gap> GapList::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(gaps_, {});
}

void Claims::locate(Claim*) const {}

IndexedClaims::IndexedClaims(std::shared_ptr<FileTable> files,
                             std::shared_ptr<const Catalog> catalog,
                             std::shared_ptr<const Order> order, StepGrid grid,
                             std::uint64_t first_step)
    : files_(std::move(files)),
      catalog_(std::move(catalog)),
      order_(std::move(order)),
      grid_(std::move(grid)),
      read_window_(files_),
      is_from_start_(first_step == 0),
      step_(first_step) {}

bool IndexedClaims::next(Claim* claim) {
  if (step_ >= grid_.n_steps()) return false;
  claim->step = step_++;
  return true;
}

namespace {

// Whether the places follow each other through the files. A single one may be anywhere.
bool is_run(std::span<const Place> places) {
  return places.size() > 1 &&
         std::adjacent_find(
             places.begin(), places.end(), [](const Place& a, const Place& b) {
               return a.file == b.file ? b.record != a.record + 1
                                       : b.file < a.file || b.record != 0;
             }) == places.end();
}

}  // namespace

void IndexedClaims::locate(Claim* claim) const {
  std::vector<std::uint64_t> numbers;
  grid_.positions(claim->step, &numbers);
  std::vector<RecordRange> upcoming;
  order_->upcoming(numbers, &upcoming);
  for (const RecordRange& range : upcoming) announce(range);
  order_->to_records(numbers);
  claim->n_rows = static_cast<std::size_t>(grid_.n_rows(claim->step, numbers.size()));
  claim->places.clear();
  catalog_->locate_all(numbers, &claim->places);
  const bool is_in_order = is_run(claim->places);
  read_window_.read(claim->places, is_in_order && is_from_start_);
  if (is_in_order && grid_.world_size == 1) {
    const Place& last = claim->places.back();
    read_window_.read_ahead(last.file, last.frame.end());
  }
}

// Has the records of `range` read ahead, frames that touch each other together.
void IndexedClaims::announce(const RecordRange& range) const {
  std::vector<Place> places;
  catalog_->locate_range(range.first, range.count, &places);
  for (std::size_t i = 0; i < places.size();) {
    const Place& first = places[i];
    std::uint64_t end = first.frame.end();
    for (++i; i < places.size() && places[i].file == first.file &&
              places[i].frame.offset == end;
         ++i) {
      end = places[i].frame.end();
    }
    try {
      const auto view = files_->open(first.file);
      view->will_need(first.frame.offset, end - first.frame.offset);
    } catch (const std::exception&) {
      return;  // whoever reads these records will say so
    }
  }
}

StreamClaims::StreamClaims(FrameStream stream, StreamShape shape,
                           std::optional<WindowDraws> window)
    : stream_(std::move(stream)),
      shape_(std::move(shape)),
      step_(shape_.first_step),
      position_(shape_.first_position),
      window_(window) {}

bool StreamClaims::next(Claim* claim) {
  const StepGrid& grid = shape_.grid;
  if (shape_.is_counted && step_ >= grid.n_steps()) return false;
  claim->step = step_++;
  claim->places.clear();
  claim->frames.assign(Buffer::kSlackBytes, 0);
  if (shape_.is_counted) {
    std::vector<std::uint64_t> wanted;
    grid.positions(claim->step, &wanted);
    const PositionRange all = grid.range(claim->step);
    const std::uint64_t first = wanted.empty() ? all.first + all.count : wanted.front();
    while (position_ < first && pass_over()) continue;
    while (claim->places.size() < wanted.size() && take(claim)) continue;
    while (position_ < all.first + all.count && pass_over()) continue;
    if (claim->places.size() < wanted.size() && !grid.pad_last) {
      throw stream_.error(Errc::kFileChanged,
                          "there are fewer records than were counted: a file changed");
    }
  } else {
    while (position_ < claim->step * grid.batch_size && pass_over()) continue;
    while (claim->places.size() < grid.batch_size && take(claim)) continue;
    if (claim->places.empty()) return false;
    if (grid.drop_last && claim->places.size() < grid.batch_size) return false;
  }
  claim->n_rows =
      static_cast<std::size_t>(grid.n_rows(claim->step, claim->places.size()));
  claim->frames.insert(claim->frames.end(), Buffer::kSlackBytes, 0);
  return true;
}

bool StreamClaims::read(std::uint64_t bytes_max, Place* place,
                        std::vector<std::uint8_t>* frames) {
  if (is_ended_) return false;
  is_ended_ = !stream_.next(bytes_max, place, frames);
  if (stream_.has_gaps()) gaps_.add(stream_.take_gaps());
  return !is_ended_;
}

// The next record in the order of reading.
bool StreamClaims::pull(std::uint64_t bytes_max, Held* held) {
  held->frame.clear();
  return read(bytes_max, &held->place, &held->frame);
}

// The next record in the order of delivery, by way of the window.
bool StreamClaims::draw(Held* held) {
  while (!is_ended_ && slots_.size() < window_->n_slots()) {
    Held incoming;
    if (!pull(shape_.bytes_max - held_bytes_, &incoming)) break;
    held_bytes_ += incoming.frame.size();
    slots_.push_back(std::move(incoming));
  }
  if (pull(shape_.bytes_max - held_bytes_, held)) {
    Held& slot = slots_[window_->slot(position_)];
    held_bytes_ = held_bytes_ + held->frame.size() - slot.frame.size();
    std::swap(slot, *held);
    return true;
  }
  if (!last_) last_ = window_->last(slots_.size());
  if (n_emptied_ == slots_.size()) return false;
  *held = std::move(slots_[(*last_)(n_emptied_++)]);
  held_bytes_ -= held->frame.size();
  return true;
}

// Adds the next record to the claim.
bool StreamClaims::take(Claim* claim) {
  Place place;
  if (window_) {
    Held held;
    if (!draw(&held)) return false;
    place = held.place;
    claim->frames.insert(claim->frames.end(), held.frame.begin(), held.frame.end());
  } else if (!read(shape_.bytes_max, &place, &claim->frames)) {
    return false;
  }
  ++position_;
  claim->places.push_back(place);
  return true;
}

bool StreamClaims::pass_over() {
  const bool is_there =
      window_ ? draw(&passed_over_) : pull(shape_.bytes_max, &passed_over_);
  position_ += is_there;
  return is_there;
}

}  // namespace fastrec
