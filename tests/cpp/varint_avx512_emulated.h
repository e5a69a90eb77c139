// The source of varint/avx512.cpp, compiled against avx512_emulation.h.
#pragma once

#include "varint/packed.h"

namespace fastrec::testing {

VarintKernel emulated_avx512();

}  // namespace fastrec::testing
