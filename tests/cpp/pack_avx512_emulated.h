// The source of wire/pack_avx512.cpp, compiled against avx512_emulation.h.
#pragma once

#include "wire/pack.h"

namespace fastrec::testing {

PackKernel emulated_avx512_pack();

}  // namespace fastrec::testing
