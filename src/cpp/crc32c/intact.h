// Intact: contiguous frames -> the number of intact ones.
//
// The including file defines FASTREC_TARGET_KERNEL, so that the checksums are inlined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "crc32c/crc32c.h"

namespace fastrec::kernels {

// See Crc32cKernel::count_intact. `Kernel` provides extend() and crc_of_word().
template <typename Kernel>
FASTREC_TARGET_KERNEL inline std::size_t count_intact(
    const std::uint8_t* frame, std::span<const std::uint64_t> lengths) noexcept {
  std::size_t n = 0;
  for (const std::uint64_t length : lengths) {
    const std::uint8_t* const payload = frame + 12;
    const std::uint8_t* const footer = payload + length;
    const auto found = load_le<std::uint64_t>(frame);
    if (found != length ||
        load_le<std::uint32_t>(frame + 8) != crc32c_mask(Kernel::crc_of_word(found))) {
      return n;
    }
    const std::uint32_t crc = Kernel::extend(0, {payload, footer});
    if (load_le<std::uint32_t>(footer) != crc32c_mask(crc)) return n;
    frame = footer + 4;
    ++n;
  }
  return n;
}

}  // namespace fastrec::kernels
