#include "loader/pipeline.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace fastrec {
namespace {

// A consumer that is away for longer than this does something else. Making arrays and
// an empty loop take 5 to 20 us per batch.
constexpr std::chrono::microseconds kAway(200);

// A parked thread looks again after kAway, then after twice as long each time, so that
// it sleeps no longer than it was parked. At most this long: 80 wake-ups a second.
constexpr std::chrono::microseconds kMaxPause = 64 * kAway;

}  // namespace

Pipeline::Pipeline(std::unique_ptr<Claims> claims,
                   std::shared_ptr<const Sources> sources,
                   std::shared_ptr<BlockPool> pool, PipelineOptions options)
    : claims_(std::move(claims)),
      sources_(std::move(sources)),
      pool_(std::move(pool)),
      options_(options),
      n_decoding_max_(std::max(options.n_threads, options.n_cpus)),
      slots_(std::max<std::size_t>(options.prefetch, 1)),
      n_ready_(slots_.size() + 1) {}

Pipeline::~Pipeline() { stop(); }

void Pipeline::stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    threads.swap(threads_);
  }
  claimable_.notify_all();
  unparked_.notify_all();
  deliverable_.notify_all();
  consumable_.notify_all();
  claims_->stop();
  for (std::thread& thread : threads) thread.join();
}

bool Pipeline::may_claim() const {
  if (is_exhausted_ || is_stopped_) return false;
  const std::uint64_t n_claimed = next_claim_ - next_delivery_;
  if (n_claimed == slots_.size()) return false;
  // A batch that is larger than the limit by itself must still come through.
  return n_claimed == 0 ||
         held_bytes_ + (n_working_ + 1) * last_bytes_ <= options_.memory_limit;
}

void Pipeline::start_threads() {
  for (unsigned i = 0; i < options_.n_threads; ++i) {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      if (threads_.empty() && !options_.is_helping) throw;
      return;  // no more are to be had: those there are, and next(), do the work
    }
  }
}

void Pipeline::run() {
  Bench bench;
  while (wait_for_work()) claim_and_decode(&bench);
}

// Waits for a step to claim and a CPU to decode it on. Returns false at the end.
bool Pipeline::wait_for_work() {
  std::unique_lock lock(mutex_);
  std::chrono::microseconds pause = kAway;
  while (!is_exhausted_ && !is_stopped_) {
    if (!may_claim()) {
      ++n_sleeping_;
      claimable_.wait(lock);
      --n_sleeping_;
    } else if (n_working_ + (is_consumer_near() ? 1 : 0) < n_decoding_max_) {
      return true;
    } else {
      unparked_.wait_for(lock, pause);
      pause = std::min(2 * pause, kMaxPause);
    }
  }
  return false;
}

// Whether the consumer is about to come back and decode: it did so in the last round of
// the ring, and has left next() only now.
bool Pipeline::is_consumer_near() const {
  return !is_consuming_ && n_ready_ <= slots_.size() &&
         std::chrono::steady_clock::now() - left_at_ < kAway;
}

void Pipeline::claim_and_decode(Bench* bench) {
  Claim& claimed = bench->claim;
  const std::optional<std::uint64_t> number = claim(bench);
  if (!number) return;
  Delivery& delivery = bench->delivery;
  delivery.step = claimed.step;
  delivery.n_bytes = 0;
  delivery.damages.clear();
  std::exception_ptr failure;
  try {
    // Made here, where a failure has a slot to go to.
    if (!bench->decoder) bench->decoder.emplace(sources_, pool_);
    claims_->locate(&claimed);
    delivery.n_rows = claimed.n_rows;
    delivery.n_valid = claimed.places.size();
    const std::uint8_t* frames =
        claimed.frames.empty() ? nullptr : claimed.frames.data() + Buffer::kSlackBytes;
    delivery.parts = bench->decoder->decode(claimed.places, claimed.n_rows, frames,
                                            options_.on_damage, &delivery.damages,
                                            std::move(delivery.parts));
    for (const Part& part : delivery.parts) delivery.n_bytes += part.batch.n_bytes;
    delivery.places.swap(claimed.places);
  } catch (...) {
    failure = std::current_exception();
  }
  put(*number, &delivery, failure);
}

// What whoever set is_consuming_ does in place of waiting.
void Pipeline::help() {
  const auto begin = std::chrono::steady_clock::now();
  claim_and_decode(&inline_bench_);
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
  helping_.store(helping_.load() + taken);
}

// The number of the slot that is now the caller's to fill; nothing if there is nothing
// to do. A step that cannot be claimed has its failure put into its slot.
std::optional<std::uint64_t> Pipeline::claim(Bench* bench) {
  claims_->prepare();
  const std::lock_guard claiming(claim_mutex_);
  std::uint64_t number;
  {
    const std::lock_guard lock(mutex_);
    if (!may_claim()) return std::nullopt;
    number = next_claim_++;
    ++n_working_;
    slot(number).state = Slot::State::kWorking;
  }
  bool is_claimed = false;
  std::exception_ptr failure;
  try {
    is_claimed = claims_->next(&bench->claim);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    bench->delivery.n_bytes = 0;
    put(number, &bench->delivery, failure);
    return std::nullopt;
  }
  if (is_claimed) return number;

  const std::lock_guard lock(mutex_);
  --next_claim_;
  --n_working_;
  slot(number).state = Slot::State::kFree;
  is_exhausted_ = true;
  claimable_.notify_all();
  unparked_.notify_all();
  deliverable_.notify_all();
  return std::nullopt;
}

// Exchanges the contents of `*delivery` for those of an earlier one.
void Pipeline::put(std::uint64_t number, Delivery* delivery,
                   const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  Slot& target = slot(number);
  --n_working_;
  held_bytes_ += delivery->n_bytes;
  if (!failure) last_bytes_ = delivery->n_bytes;
  std::swap(target.delivery, *delivery);
  target.failure = failure;
  target.state = Slot::State::kReady;
  // Steps before this one have all been claimed; those after it will not be wanted.
  if (failure) {
    is_exhausted_ = true;
    claimable_.notify_all();
    unparked_.notify_all();
  }
  if (number == next_delivery_) deliverable_.notify_all();
}

void Pipeline::deliver(Delivery* delivery) {
  Slot& source = slot(next_delivery_);
  if (source.failure) std::rethrow_exception(source.failure);
  std::swap(*delivery, source.delivery);
  source.state = Slot::State::kFree;
  held_bytes_ -= delivery->n_bytes;
  ++next_delivery_;
  ++n_ready_;
  // Waking a thread costs as much as decoding some batches, so it gets several to do.
  const std::uint64_t n_claimed = next_claim_ - next_delivery_;
  if (n_sleeping_ > 0 && may_claim() && 2 * n_claimed <= slots_.size()) {
    claimable_.notify_all();
  }
}

Pipeline::Outcome Pipeline::next(std::chrono::milliseconds patience,
                                 Delivery* delivery) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  // A slot keeps the memory of the delivery, but not the blocks.
  for (Part& part : delivery->parts) part.batch.blocks.clear();
  std::unique_lock lock(mutex_);
  if (!consumable_.wait_until(lock, deadline,
                              [&] { return !is_consuming_ || is_stopped_; })) {
    return Outcome::kPending;
  }
  if (is_stopped_) return Outcome::kEnd;
  if (!is_started_) {
    start_threads();
    is_started_ = true;
  }

  is_consuming_ = true;
  struct Leaving {
    Pipeline* pipeline;
    ~Leaving() {
      pipeline->is_consuming_ = false;
      pipeline->left_at_ = std::chrono::steady_clock::now();
      pipeline->consumable_.notify_one();
    }
  };
  const Leaving leaving{this};
  while (true) {
    if (is_stopped_) return Outcome::kEnd;
    if (is_ready()) {
      deliver(delivery);
      return Outcome::kBatch;
    }
    if (is_at_end()) {
      sources_->files->check_unchanged();
      return Outcome::kEnd;
    }
    if (std::chrono::steady_clock::now() >= deadline) return Outcome::kPending;
    if (options_.is_helping && may_claim()) {
      n_ready_ = 0;
      lock.unlock();
      help();
      lock.lock();
      continue;
    }
    deliverable_.wait_until(lock, deadline, [&] {
      return is_ready() || is_at_end() || is_stopped_ ||
             (options_.is_helping && may_claim());
    });
  }
}

}  // namespace fastrec
