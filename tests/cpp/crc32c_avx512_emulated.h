// The source of crc32c/avx512.cpp, compiled against avx512_emulation.h.
#pragma once

#include "crc32c/crc32c.h"

namespace fastrec::testing {

Crc32cKernel emulated_crc32c_avx512();

}  // namespace fastrec::testing
