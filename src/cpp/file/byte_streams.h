// ByteStreams: a bounded queue of byte streams, one per file, from several producers to
// one consumer.
//
//   producers                                           consumer
//   begin() -> 2   push, push, end     [ 0 ] current    pop, pop, ..., advance()
//   begin() -> 3   push, ...           [ 1 ]
//                                      [ 2 ]  [ 3 ]
//
// Each producer fills one stream at a time, for example with inflated bytes. The
// consumer reads the streams in order. At most `n_ahead` streams are open, and push()
// waits while a stream holds `bytes_ahead` unread bytes. Chunks are recycled, because
// the page faults of fresh memory cost as much as several copies.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace fastrec {

class ByteStreams {
 public:
  // `n_ahead` is at least 1.
  ByteStreams(std::size_t n_streams, std::size_t n_ahead, std::size_t bytes_ahead);

  // The process that created the queue. A forked child has no producers.
  int process_id() const noexcept { return process_id_; }

  // For producers, on any thread. begin() waits until a stream may be opened and
  // returns its number, or nothing if none is left. push() waits for room. After
  // stop(), begin() returns nothing and push() returns false.
  std::optional<std::size_t> begin();
  bool push(std::size_t stream, Bytes bytes);
  void end(std::size_t stream) { fail(stream, nullptr); }
  // Ends the stream with an exception, which pop() throws after the last byte.
  void fail(std::size_t stream, std::exception_ptr failure);

  // For the consumer, on one thread at a time. pop() waits up to `timeout` for bytes of
  // the current stream and stores them in `*chunk`, whose old memory it recycles.
  enum class PopResult : std::uint8_t {
    kBytes,
    kEnd,  // of the stream; also after stop()
    kTimeout,
  };
  PopResult pop(std::chrono::milliseconds timeout, std::vector<std::uint8_t>* chunk);
  // Moves to the next stream.
  void advance();

  // Ends all waits and all streams. Any thread may call these.
  void stop();
  bool is_stopped() const noexcept { return is_stopped_; }

 private:
  struct Stream {
    std::deque<std::vector<std::uint8_t>> chunks;
    std::size_t n_bytes = 0;
    bool is_ended = false;
    std::exception_ptr failure;
  };

  // The stream, or nullptr if the consumer has moved past it.
  Stream* find(std::size_t stream);
  std::vector<std::uint8_t> take_spare();

  const int process_id_;
  const std::size_t n_streams_;
  const std::size_t n_ahead_;
  const std::size_t bytes_ahead_;
  std::mutex mutex_;                               // guards everything below
  std::condition_variable room_;                   // wakes producers
  std::condition_variable filled_;                 // wakes the consumer
  std::deque<Stream> open_;                        // the current stream is the first
  std::vector<std::vector<std::uint8_t>> spares_;  // recycled chunks
  std::size_t current_ = 0;
  std::atomic<bool> is_stopped_ = false;
};

}  // namespace fastrec
