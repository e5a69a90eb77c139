// The least that a reader must do: walk the frames of a file in memory, verify both
// checksums, and copy each payload into a batch that is used again.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "crc32c/crc32c.h"

namespace {

constexpr std::size_t kHeaderBytes = 12, kFooterBytes = 4, kAheadBytes = 2048;

std::uint32_t load(const std::uint8_t* at) {
  std::uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

// Copies the payloads of up to `n_records` frames from `*begin` on, and moves `*begin`
// behind them. Returns their number, or -1 for a damaged frame. `target` has room for
// `n_bytes`.
extern "C" long copy_batch(const std::uint8_t** begin, const std::uint8_t* end,
                           long n_records, std::uint8_t* target, std::size_t n_bytes) {
  using namespace fastrec;
  const Crc32cKernel& kernel = crc32c_kernel();
  const std::uint8_t* frame = *begin;
  long n = 0;
  for (; n < n_records && frame != end; ++n) {
    std::uint64_t length;
    std::memcpy(&length, frame, sizeof length);
    if (load(frame + 8) != crc32c_mask(kernel.extend(0, {frame, 8}))) return -1;
    const std::uint8_t* payload = frame + kHeaderBytes;
    if (length > n_bytes) return -1;
    for (std::size_t i = 0; i < 1024 && i < length; i += 64) {
      __builtin_prefetch(payload + length + kAheadBytes + i);
    }
    const std::uint32_t crc = kernel.copy(0, {payload, length}, target);
    if (load(payload + length) != crc32c_mask(crc)) return -1;
    target += length;
    n_bytes -= length;
    frame = payload + length + kFooterBytes;
  }
  *begin = frame;
  return n;
}
