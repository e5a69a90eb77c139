// libFuzzer entry: any bytes, checksummed by every kernel.
//
// Goal: the kernels agree for every input, initial checksum and split. Method: the
// first bytes of the input select the initial checksum, the splits, the kernel that is
// compared with the portable one, and how often the rest is repeated, because the fuzzer
// rarely generates inputs as long as the longest loops. The emulated kernel is slow, so
// it gets fewer repetitions.

#include <cstdlib>
#include <vector>

#include "crc32c/crc32c.h"
#include "crc32c_avx512_emulated.h"

namespace {

struct Choices {
  std::uint32_t crc;
  std::uint32_t first_cut;
  std::uint32_t second_cut;
  std::uint8_t kernel_and_repetitions;
};
constexpr std::size_t kChoicesBytes = 13;

std::vector<fastrec::Crc32cKernel> kernels_and_emulated() {
  using namespace fastrec;
  std::vector<Crc32cKernel> kernels(crc32c_kernels().begin(), crc32c_kernels().end());
  kernels.push_back(testing::emulated_crc32c_avx512());
  return kernels;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace fastrec;
  if (size < kChoicesBytes) return 0;
  const Choices choices = {load_le<std::uint32_t>(input),
                           load_le<std::uint32_t>(input + 4),
                           load_le<std::uint32_t>(input + 8), input[12]};

  static const std::vector<Crc32cKernel> kernels = kernels_and_emulated();
  const std::size_t k = choices.kernel_and_repetitions / 32 % kernels.size();
  const bool is_emulated = k + 1 == kernels.size();
  const std::size_t n_repetitions =
      choices.kernel_and_repetitions % (is_emulated ? 4u : 32u) + 1;

  // An exact allocation, so that AddressSanitizer sees a read past either end.
  const Bytes pattern(input + kChoicesBytes, size - kChoicesBytes);
  std::vector<std::uint8_t> repeated;
  repeated.reserve(pattern.size() * n_repetitions);
  for (std::size_t i = 0; i < n_repetitions; ++i) {
    repeated.insert(repeated.end(), pattern.begin(), pattern.end());
  }
  const Bytes whole(repeated);
  const Bytes head = whole.first(choices.first_cut % (whole.size() + 1));
  const Bytes rest = whole.subspan(head.size());
  const Bytes middle = rest.first(choices.second_cut % (rest.size() + 1));
  const Bytes tail = rest.subspan(middle.size());

  const std::uint32_t expected = crc32c_kernels().back().extend(choices.crc, whole);
  const Crc32cKernel& kernel = kernels[k];
  if (kernel.extend(choices.crc, whole) != expected) std::abort();
  const std::uint32_t after_head = kernel.extend(choices.crc, head);
  const std::uint32_t after_middle = kernel.extend(after_head, middle);
  if (kernel.extend(after_middle, tail) != expected) std::abort();
  return 0;
}
