#include "loader/pipeline.h"

#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/interrupt.h"

namespace fastrec {
namespace {

// A consumer that stays away from next() for longer than this is busy. Creating the
// arrays and an empty loop take 5 to 20 us per batch.
constexpr std::chrono::microseconds kAway(200);

// A parked thread checks again after kAway, then after twice as long each time, up to
// this: 80 wake-ups a second.
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
  if (RangeRequests* requests = sources_->files->requests()) requests->withdraw_hints();
}

// Ends the wait of a thread after stop().
void Pipeline::check_stopped() {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) throw std::runtime_error("the pipeline was stopped");
}

bool Pipeline::may_claim() const {
  if (is_exhausted_ || is_stopped_) return false;
  const std::uint64_t n_claimed = next_claim_ - next_delivery_;
  if (n_claimed == slots_.size()) return false;
  // A single batch may exceed the memory limit.
  return n_claimed == 0 ||
         ready_bytes_ + (n_working_ + 1) * last_bytes_ <= options_.memory_limit;
}

void Pipeline::start_threads() {
  for (unsigned i = 0; i < options_.n_threads; ++i) {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      if (threads_.empty() && !options_.is_helping) throw;
      return;  // continue with the threads that started, and next()
    }
  }
}

void Pipeline::run() {
  const InterruptScope interrupts([this] { check_stopped(); });
  WorkerState worker;
  while (wait_for_work()) claim_and_decode(&worker);
}

// Waits for a step to claim and a CPU to decode it on. Returns false at the end.
bool Pipeline::wait_for_work() {
  std::unique_lock lock(mutex_);
  wake_one();
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

// Whether the consumer is likely to decode soon: it did so in the last round of the
// ring, and is in next() or has just left it. While it decodes, n_working_ counts it.
bool Pipeline::is_consumer_near() const {
  return !is_helping_ && n_ready_ <= slots_.size() &&
         (is_consuming_ || std::chrono::steady_clock::now() - left_at_ < kAway);
}

// Wakes a thread if several steps are free, since a wake-up costs as much as decoding
// some batches. One thread at a time is enough for a slow consumer.
void Pipeline::wake_one() {
  if (n_sleeping_ > 0 && may_claim() &&
      2 * (next_claim_ - next_delivery_) <= slots_.size()) {
    claimable_.notify_one();
  }
}

void Pipeline::claim_and_decode(WorkerState* worker) {
  Claim& claimed = worker->claim;
  const std::optional<std::uint64_t> number = claim(worker);
  if (!number) return;
  Delivery& delivery = worker->delivery;
  delivery.step = claimed.step;
  delivery.n_bytes = 0;
  delivery.unreadable_rows.clear();
  std::exception_ptr failure;
  try {
    // Created here, so that a failure is stored in a slot.
    if (!worker->decoder) worker->decoder.emplace(sources_, pool_);
    claims_->locate(&claimed);
    delivery.n_rows = claimed.n_rows;
    delivery.n_valid = claimed.frames.size();
    const std::uint8_t* bytes =
        claimed.bytes.empty() ? nullptr : claimed.bytes.data() + Buffer::kSlackBytes;
    delivery.parts = worker->decoder->decode(
        claimed.frames, claimed.n_rows, claimed.rows, bytes, options_.row_policy,
        &delivery.unreadable_rows, std::move(delivery.parts));
    for (const Part& part : delivery.parts) delivery.n_bytes += part.batch.n_bytes;
    std::swap(delivery.frames, claimed.frames);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  publish(*number, &delivery, failure);
}

// The consumer decodes a batch instead of waiting.
void Pipeline::help() {
  const auto begin = std::chrono::steady_clock::now();
  claim_and_decode(&consumer_state_);
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
  helping_.store(helping_.load() + taken);
}

// Claims a step and returns the number of its slot, or nothing if there is no work, or
// other threads have claimed it. If the claim fails, publishes the failure in the slot.
std::optional<std::uint64_t> Pipeline::claim(WorkerState* worker) {
  claims_->prepare();
  const std::lock_guard lock(mutex_);
  if (!may_claim()) return std::nullopt;
  Claims::Outcome outcome = Claims::Outcome::kStep;
  std::exception_ptr failure;
  try {
    outcome = claims_->next(&worker->claim);
  } catch (...) {
    failure = std::current_exception();
  }
  if (outcome == Claims::Outcome::kStep) {
    const std::uint64_t number = next_claim_++;
    ++n_working_;
    slot(number).state = Slot::State::kWorking;
    if (!failure) return number;
    worker->delivery.n_bytes = 0;
    publish(number, &worker->delivery, failure);
  } else if (outcome == Claims::Outcome::kEnd) {
    exhaust();
    deliverable_.notify_all();
  }
  return std::nullopt;
}

// Ends the wait of all background threads.
void Pipeline::exhaust() {
  is_exhausted_ = true;
  claimable_.notify_all();
  unparked_.notify_all();
}

// Swaps `*delivery` into its slot; it then holds an earlier one, to reuse its memory.
void Pipeline::publish(std::uint64_t number, Delivery* delivery,
                       const std::exception_ptr& failure) {
  Slot& target = slot(number);
  --n_working_;
  ready_bytes_ += delivery->n_bytes;
  if (!failure) last_bytes_ = delivery->n_bytes;
  std::swap(target.delivery, *delivery);
  target.failure = failure;
  target.state = Slot::State::kReady;
  // All earlier steps are claimed already, and no later step will be delivered.
  if (failure) exhaust();
  if (number == next_delivery_) deliverable_.notify_all();
}

void Pipeline::deliver(Delivery* delivery) {
  Slot& source = slot(next_delivery_);
  if (source.failure) std::rethrow_exception(source.failure);
  std::swap(*delivery, source.delivery);
  source.state = Slot::State::kFree;
  ready_bytes_ -= delivery->n_bytes;
  ++next_delivery_;
  ++n_ready_;
  wake_one();
}

Pipeline::Outcome Pipeline::next(std::chrono::milliseconds patience,
                                 Delivery* delivery) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  // A slot reuses the memory of the delivery, but not its blocks.
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
  struct ConsumerGuard {
    Pipeline* pipeline;
    ~ConsumerGuard() {
      pipeline->is_consuming_ = false;
      pipeline->left_at_ = std::chrono::steady_clock::now();
      pipeline->consumable_.notify_one();
    }
  };
  const ConsumerGuard guard{this};
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
    const auto begin = std::chrono::steady_clock::now();
    if (begin >= deadline) return Outcome::kPending;
    if (options_.is_helping && may_claim()) {
      n_ready_ = 0;
      is_helping_ = true;
      lock.unlock();
      help();
      lock.lock();
      is_helping_ = false;
    } else {
      deliverable_.wait_until(lock, deadline, [&] {
        return is_ready() || is_at_end() || is_stopped_ ||
               (options_.is_helping && may_claim());
      });
    }
    const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begin;
    starving_.store(starving_.load() + taken);
  }
}

}  // namespace fastrec
