// Image size: the header of a JPEG, PNG or WebP file -> its width, height and channels.
//
// Nothing is decoded, so it is cheap and safe to call before memory is allocated. The
// JPEG markers are found as libjpeg finds them.
//
// Source: ITU-T T.81, annex B; the PNG specification, section 11; RFC 6386, section 9.1;
// the WebP container and lossless specifications.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace fastrec {

struct ImageSize {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t channels = 3;  // 1, 3 or 4: those of fr.Image that lose nothing
  std::uint32_t bits = 8;      // of a channel
};

// nullopt if `file` is not such an image, or ends before its size.
std::optional<ImageSize> image_size_of(Bytes file) noexcept;

}  // namespace fastrec
