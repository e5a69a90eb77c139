// Pipeline: claims -> batches, decoded by several threads, delivered in order.
//
// Slots hold the batches between claim and delivery, in a ring:
//
//   delivered ...  [ ready | working | ready | free | free ]  ... not claimed
//                    next_delivery_            next_claim_
//
// A thread claims the next step, decodes it and publishes it in its slot. The consumer
// takes the slots in order. If the one it needs is not ready, the consumer claims and
// decodes a step itself, so that its core is never idle; it waits only for batches that
// other threads are decoding. Background threads sleep while the ring is full or its
// batches reach the memory limit. They wake when at most half of the ring is claimed
// and memory is available, so that each wake-up pays for several steps.
//
// An error takes the slot of its batch. So the first error in the order of delivery is
// thrown, whichever thread found it first, and no batch follows it.
//
// Threads and CPUs
//   More decoding threads than CPUs slow down all of them. While the consumer does
//   nothing but decode, one background thread parks. It sleeps for a while, and decodes
//   again if the consumer stays away from next(), for example to wait for a GPU. The
//   other threads ignore the consumer.
//
// A pipeline does not depend on Python. Threads start at the first next().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "batch/column.h"
#include "loader/batch_decoder.h"
#include "loader/claims.h"

namespace fastrec {

struct PipelineOptions {
  unsigned n_threads = 0;  // background threads; with 0, next() decodes
  // CPUs that threads may use. With more threads than CPUs, the caller expects threads
  // to wait for a disk, so all of them may decode at the same time.
  unsigned n_cpus = 1;
  std::size_t prefetch = 2;             // batches between claim and delivery
  std::size_t memory_limit = SIZE_MAX;  // bytes of those batches
  // Whether next() decodes, too. False if that may wait, for example for a remote
  // store: then next() always returns in time, and there must be a background thread.
  bool is_helping = true;
  RowPolicy row_policy = RowPolicy::kRaise;
};

struct Delivery {
  std::vector<Part> parts;
  std::uint64_t step = 0;
  std::size_t n_rows = 0;
  std::size_t n_valid = 0;  // records; padding rows follow them
  std::size_t n_bytes = 0;
  // Rows that were masked, or skipped and so missing in `parts`. n_rows and n_valid
  // include both.
  std::vector<UnreadableRow> unreadable_rows = {};
  FrameRuns frames = {};  // of the records
};

class Pipeline {
 public:
  enum class Outcome : std::uint8_t {
    kBatch,    // `*delivery` holds the next batch
    kEnd,      // all steps were delivered and no file changed, or stop() was called
    kPending,  // the time is up; call again
  };

  Pipeline(std::unique_ptr<Claims> claims, std::shared_ptr<const Sources> sources,
           std::shared_ptr<BlockPool> pool, PipelineOptions options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Delivers the next batch. Waits at most `patience` for a batch that another thread
  // is decoding. Reuses the memory of `*delivery`. Throws Error, IoError and
  // std::bad_alloc, again at every later call.
  Outcome next(std::chrono::milliseconds patience, Delivery* delivery);

  // The time that next() has spent decoding so far. Any thread may call this.
  std::chrono::nanoseconds helping() const noexcept { return helping_.load(); }

  // The time that next() had no batch ready, helping included. Any thread may call this.
  std::chrono::nanoseconds starving() const noexcept { return starving_.load(); }

  // Returns the gaps skipped since the last call. Any thread may call this.
  std::vector<SkippedSpan> take_gaps() { return claims_->take_gaps(); }

  // See Claims::take_offsets(). Any thread may call this.
  std::vector<FileOffsets> take_offsets() { return claims_->take_offsets(); }

  // Joins the threads after their current batches, or at once if they wait for a remote
  // store; next() then returns kEnd. Any thread may call this.
  void stop();

 private:
  // The memory that a thread reuses from step to step.
  struct WorkerState {
    std::optional<BatchDecoder> decoder;
    Claim claim;
    Delivery delivery;
  };

  struct Slot {
    enum class State : std::uint8_t { kFree, kWorking, kReady } state = State::kFree;
    Delivery delivery;
    std::exception_ptr failure;
  };

  Slot& slot(std::uint64_t number) { return slots_[number % slots_.size()]; }
  bool may_claim() const;
  bool is_ready() { return slot(next_delivery_).state == Slot::State::kReady; }
  bool is_at_end() const { return is_exhausted_ && next_delivery_ == next_claim_; }
  void start_threads();
  void run();
  void check_stopped();
  bool wait_for_work();
  bool is_consumer_near() const;
  void wake_one();
  void claim_and_decode(WorkerState* worker);
  void help();
  std::optional<std::uint64_t> claim(WorkerState* worker);
  void exhaust();
  void publish(std::uint64_t number, Delivery* delivery,
               const std::exception_ptr& failure);
  void deliver(Delivery* delivery);

  const std::unique_ptr<Claims> claims_;
  const std::shared_ptr<const Sources> sources_;
  const std::shared_ptr<BlockPool> pool_;
  const PipelineOptions options_;
  const unsigned n_decoding_max_;  // threads, the consumer included

  std::mutex mutex_;                   // guards everything below except consumer_state_
  std::condition_variable claimable_;  // the ring has room
  std::condition_variable unparked_;   // nothing is left to claim
  std::condition_variable deliverable_;  // a slot is ready
  std::condition_variable consumable_;   // no thread is in next()
  std::vector<Slot> slots_;
  std::uint64_t next_claim_ = 0;
  std::uint64_t next_delivery_ = 0;
  std::uint64_t n_working_ = 0;
  std::size_t ready_bytes_ = 0;  // of batches that are ready
  std::size_t last_bytes_ = 0;   // of the last decoded batch: an estimate of the next
  bool is_started_ = false;
  bool is_exhausted_ = false;  // nothing is left to claim
  bool is_stopped_ = false;
  bool is_consuming_ = false;  // a thread, the consumer, is in next()
  bool is_helping_ = false;    // the consumer is decoding
  unsigned n_sleeping_ = 0;    // background threads that wait for room
  std::chrono::steady_clock::time_point left_at_;  // when next() last returned
  std::size_t n_ready_;  // batches delivered since next() last decoded one
  std::vector<std::thread> threads_;

  WorkerState consumer_state_;  // used by the consumer
  std::atomic<std::chrono::nanoseconds> helping_{std::chrono::nanoseconds{0}};
  std::atomic<std::chrono::nanoseconds> starving_{std::chrono::nanoseconds{0}};
};

}  // namespace fastrec
