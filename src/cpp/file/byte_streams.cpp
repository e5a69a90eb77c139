#include "file/byte_streams.h"

#include <utility>

#include "base/process.h"

namespace fastrec {

ByteStreams::ByteStreams(std::size_t n_streams, std::size_t n_ahead,
                         std::size_t bytes_ahead)
    : process_id_(fastrec::process_id()),
      n_streams_(n_streams),
      n_ahead_(n_ahead),
      bytes_ahead_(bytes_ahead) {}

ByteStreams::Stream* ByteStreams::find(std::size_t stream) {
  if (is_stopped_ || stream < current_) return nullptr;
  return &open_[stream - current_];
}

std::optional<std::size_t> ByteStreams::begin() {
  std::unique_lock lock(mutex_);
  const auto is_none_left = [&] { return current_ + open_.size() >= n_streams_; };
  room_.wait(lock,
             [&] { return is_stopped_ || is_none_left() || open_.size() < n_ahead_; });
  if (is_stopped_ || is_none_left()) return std::nullopt;
  open_.emplace_back();
  return current_ + open_.size() - 1;
}

// Returns the most recent chunk, which may still be in the CPU's cache.
std::vector<std::uint8_t> ByteStreams::take_spare() {
  const std::lock_guard lock(mutex_);
  if (spares_.empty()) return {};
  std::vector<std::uint8_t> chunk = std::move(spares_.back());
  spares_.pop_back();
  return chunk;
}

bool ByteStreams::push(std::size_t stream, Bytes bytes) {
  std::vector<std::uint8_t> chunk = take_spare();
  chunk.assign(bytes.begin(), bytes.end());
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] {
    const Stream* target = find(stream);
    return target == nullptr || target->n_bytes < bytes_ahead_ ||
           target->chunks.empty();
  });
  Stream* target = find(stream);
  if (target == nullptr) return false;
  target->n_bytes += chunk.size();
  target->chunks.push_back(std::move(chunk));
  if (stream == current_) filled_.notify_all();
  return true;
}

void ByteStreams::fail(std::size_t stream, std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (Stream* target = find(stream)) {
    target->is_ended = true;
    target->failure = std::move(failure);
    filled_.notify_all();
  }
}

ByteStreams::PopResult ByteStreams::pop(std::chrono::milliseconds timeout,
                                        std::vector<std::uint8_t>* chunk) {
  std::unique_lock lock(mutex_);
  const bool is_ready = filled_.wait_for(lock, timeout, [&] {
    return is_stopped_ || current_ >= n_streams_ ||
           (!open_.empty() && (open_[0].is_ended || !open_[0].chunks.empty()));
  });
  if (!is_ready) return PopResult::kTimeout;
  if (is_stopped_ || current_ >= n_streams_) return PopResult::kEnd;
  Stream& source = open_[0];
  if (source.chunks.empty()) {
    if (source.failure) std::rethrow_exception(source.failure);
    return PopResult::kEnd;
  }
  if (chunk->capacity() != 0) spares_.push_back(std::move(*chunk));
  *chunk = std::move(source.chunks.front());
  source.chunks.pop_front();
  source.n_bytes -= chunk->size();
  room_.notify_all();
  return PopResult::kBytes;
}

void ByteStreams::advance() {
  const std::lock_guard lock(mutex_);
  if (current_ >= n_streams_ || is_stopped_) return;
  if (open_.empty()) open_.emplace_back();  // skips a stream that no producer began
  open_.pop_front();
  ++current_;
  room_.notify_all();
}

void ByteStreams::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    open_.clear();
    spares_.clear();
  }
  room_.notify_all();
  filled_.notify_all();
}
}  // namespace fastrec
