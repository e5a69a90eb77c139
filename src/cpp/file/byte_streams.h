// ByteStreams: the contents of files, as others produce them -> bytes in order.
//
//   producers                                             consumer
//   begin() -> 2   push, push, end     [ 0 ]  <- at hand   take, take, ..., advance()
//   begin() -> 3   push, ...           [ 1 ]
//                                      [ 2 ]  [ 3 ]
//
// Each producer fills one stream at a time, for example with inflated bytes. The
// consumer takes the streams in order. At most `n_ahead` streams are open. push() waits
// when one holds `bytes_ahead` bytes that were not taken, so memory is bounded. Chunks
// are recycled: fresh memory costs as much as several copies.
#pragma once

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

  // The process that made them. In one that was forked from it, nobody produces.
  int process_id() const noexcept { return process_id_; }

  // For producers, any number of threads. begin() waits for a stream to fill, and
  // returns nothing if none is left; push() waits for room. After stop(), begin()
  // returns nothing and push() false.
  std::optional<std::size_t> begin();
  bool push(std::size_t stream, Bytes bytes);
  void end(std::size_t stream);
  // The stream ends with a failure, which take() throws once all bytes were taken.
  void fail(std::size_t stream, std::exception_ptr failure);

  // For the consumer, one thread at a time. take() waits at most `patience` for bytes
  // of the current stream, and exchanges `*chunk`, taken before or empty, for them.
  enum class Taken : std::uint8_t {
    kBytes,
    kEnd,      // of the stream; also after stop()
    kPending,  // the time was up; ask again
  };
  Taken take(std::chrono::milliseconds patience, std::vector<std::uint8_t>* chunk);
  // Goes on to the next stream.
  void advance();

  // Ends all waits, and all streams. Any thread may call it.
  void stop();

 private:
  struct Stream {
    std::deque<std::vector<std::uint8_t>> chunks;
    std::size_t n_bytes = 0;
    bool is_ended = false;
    std::exception_ptr failure;
  };

  // The stream, if it is still wanted.
  Stream* open(std::size_t stream);
  std::vector<std::uint8_t> spare();

  const int process_id_;
  const std::size_t n_streams_;
  const std::size_t n_ahead_;
  const std::size_t bytes_ahead_;
  std::mutex mutex_;                               // guards all that follows
  std::condition_variable room_;                   // producers wait for it
  std::condition_variable filled_;                 // the consumer waits for it
  std::deque<Stream> open_;                        // from the one at hand on
  std::vector<std::vector<std::uint8_t>> spares_;  // to be filled again
  std::size_t at_hand_ = 0;
  bool is_stopped_ = false;
};

}  // namespace fastrec
