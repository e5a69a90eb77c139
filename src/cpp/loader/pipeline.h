// Pipeline: claims -> batches, decoded by several threads, delivered in order.
//
// Slots hold the batches between claim and delivery, in a ring:
//
//   delivered ...  [ ready | working | ready | free | free ]  ... claimed by nobody
//                    next_delivery_            next_claim_
//
// A thread claims the next step, decodes it and puts it into its slot. The consumer
// takes the slots in order; when the one it needs is not ready, it does not sleep but
// claims a step and decodes it itself, so that the consumer's core is never idle. It
// waits only for batches that others are working on. Background threads sleep when the
// ring is full or its batches reach the memory limit, and are woken when at most half
// of the ring is claimed and there is memory: each wake-up then pays for several steps.
//
// Errors take the place of the batch they happened in: the first in the order of
// delivery is the one that is thrown, whatever thread met it first. Nothing comes
// after.
//
// Threads and CPUs
//   A thread beyond the number of CPUs makes all others slower. The consumer decodes as
//   long as its loop does nothing else; then one background thread parks. It sleeps for
//   a while, and decodes again if the consumer is away from next(), as when it waits
//   for a GPU. The other threads sleep or decode without looking at it.
//
// A pipeline does not know Python. Threads start with the first next().
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
  unsigned n_threads = 0;  // in the background; 0 decodes in next()
  // That threads may use. If there are fewer than threads, the caller expects threads
  // to wait for a disk, and all of them decode at the same time.
  unsigned n_cpus = 1;
  std::size_t prefetch = 2;             // batches between claim and delivery
  std::size_t memory_limit = SIZE_MAX;  // bytes of those batches
  // Claims may wait for others, such as a disk. Then next() leaves them to the threads
  // in the background, of which there must be one, and always returns in time.
  bool is_helping = true;
  OnDamage on_damage = OnDamage::kRaise;
};

struct Delivery {
  std::vector<Part> parts;
  std::uint64_t step = 0;
  std::size_t n_rows = 0;
  std::size_t n_valid = 0;  // rows that are records; the others come after them
  std::size_t n_bytes = 0;
  // Rows that were skipped, and so are not in `parts`, or masked. The numbers of rows
  // count them.
  std::vector<Damage> damages = {};
  std::vector<Place> places = {};  // of the rows that are records
};

class Pipeline {
 public:
  enum class Outcome : std::uint8_t {
    kBatch,    // `*delivery` holds the next batch
    kEnd,      // all steps were delivered of files that stayed as they were, or
               // stop() was called
    kPending,  // the time was up; ask again
  };

  Pipeline(std::unique_ptr<Claims> claims, std::shared_ptr<const Sources> sources,
           std::shared_ptr<BlockPool> pool, PipelineOptions options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Delivers the next batch, waiting at most `patience` for a batch that other threads
  // work on. `*delivery` held a batch before, or nothing: its memory is reused. Throws
  // Error, IoError and std::bad_alloc, again at every later call.
  Outcome next(std::chrono::milliseconds patience, Delivery* delivery);

  // How long next() has decoded batches itself so far. Any thread may ask.
  std::chrono::nanoseconds helping() const noexcept { return helping_.load(); }

  // What the claims left out of files so far, each of it once. Any thread may call
  // this.
  std::vector<Gap> take_gaps() { return claims_->take_gaps(); }

  // Ends the threads, after the batches they are at; next() then says kEnd. Any thread
  // may call this.
  void stop();

 private:
  // What a thread works with, and keeps from step to step.
  struct Bench {
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
  bool wait_for_work();
  bool is_consumer_near() const;
  void claim_and_decode(Bench* bench);
  void help();
  std::optional<std::uint64_t> claim(Bench* bench);
  void put(std::uint64_t number, Delivery* delivery, const std::exception_ptr& failure);
  void deliver(Delivery* delivery);

  const std::unique_ptr<Claims> claims_;
  const std::shared_ptr<const Sources> sources_;
  const std::shared_ptr<BlockPool> pool_;
  const PipelineOptions options_;
  const unsigned n_decoding_max_;  // threads, the consumer included

  std::mutex claim_mutex_;             // one claim at a time; taken before mutex_
  std::mutex mutex_;                   // guards all that follows, but for inline_bench_
  std::condition_variable claimable_;  // there is room in the ring
  std::condition_variable unparked_;   // there is nothing more to park for
  std::condition_variable deliverable_;  // a slot is ready
  std::condition_variable consumable_;   // nobody is in next()
  std::vector<Slot> slots_;
  std::uint64_t next_claim_ = 0;
  std::uint64_t next_delivery_ = 0;
  std::uint64_t n_working_ = 0;
  std::size_t held_bytes_ = 0;  // of batches that are ready
  std::size_t last_bytes_ = 0;  // of the batch decoded last: what the next may take
  bool is_started_ = false;
  bool is_exhausted_ = false;  // there is nothing more to claim
  bool is_stopped_ = false;
  bool is_consuming_ = false;  // somebody is in next()
  unsigned n_sleeping_ = 0;    // background threads that wait for room
  std::chrono::steady_clock::time_point left_at_;  // when next() returned last
  std::size_t n_ready_;  // batches that were ready, since next() last decoded one
  std::vector<std::thread> threads_;

  Bench inline_bench_;  // of whoever set is_consuming_
  std::atomic<std::chrono::nanoseconds> helping_{std::chrono::nanoseconds{0}};
};

}  // namespace fastrec
