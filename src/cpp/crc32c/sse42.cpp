// The CRC32 instruction of SSE4.2, on three parts at a time.
//
// The instruction has a latency of 3 cycles and a throughput of one per cycle, so three
// independent parts are three times as fast as one.

#include "crc32c/kernels.h"

#if defined(__x86_64__)

#include <nmmintrin.h>
#include <wmmintrin.h>

#include "crc32c/join.h"

#define FASTREC_TARGET_KERNEL FASTREC_TARGET_JOIN

#include "crc32c/intact.h"

namespace fastrec::kernels {
namespace {

struct Kernel : WordKernel {
  FASTREC_TARGET_JOIN
  static std::uint32_t extend(std::uint32_t crc, Bytes data) noexcept {
    return ~sum_interleaved(~crc, data);
  }
};

}  // namespace

std::uint32_t extend_sse42(std::uint32_t crc, Bytes data) noexcept {
  return Kernel::extend(crc, data);
}

std::uint32_t copy_sse42(std::uint32_t crc, Bytes source,
                         std::uint8_t* target) noexcept {
  return copy_in_pieces(extend_sse42, crc, source, target);
}

FASTREC_TARGET_JOIN
std::size_t count_intact_sse42(const std::uint8_t* frame,
                               std::span<const std::uint64_t> lengths) noexcept {
  return count_intact<Kernel>(frame, lengths);
}

}  // namespace fastrec::kernels

#endif
