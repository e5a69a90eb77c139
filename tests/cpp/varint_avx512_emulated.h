// The source of wire/packed_avx512.cpp, compiled against avx512_emulation.h.
#pragma once

#include "wire/packed.h"

namespace fastrec::testing {

VarintKernel emulated_avx512();

}  // namespace fastrec::testing
