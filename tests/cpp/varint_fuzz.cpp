// libFuzzer entry: any bytes, decoded as packed varints by every kernel.
//
// Goal: the kernels agree for every input and number of values, and access only their
// own memory. Method: the first bytes of the input select the number, the decoder, the
// kernel that is compared with the portable one, and how often the rest is repeated,
// because the fuzzer rarely generates inputs of several windows; input and output are
// exact allocations, so that AddressSanitizer detects an access past either end. The
// emulated kernel is slow, so it gets fewer repetitions.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "varint_avx512_emulated.h"
#include "wire/packed.h"

namespace fastrec {
namespace {

constexpr std::size_t kChoicesBytes = 3;

std::vector<VarintKernel> kernels_and_emulated() {
  std::vector<VarintKernel> kernels(varint_kernels().begin(), varint_kernels().end());
  kernels.push_back(testing::emulated_avx512());
  return kernels;
}

template <typename Int>
void compare(DecodeVarints<Int>* decode, DecodeVarints<Int>* portable, Bytes packed,
             std::size_t count) {
  std::vector<Int> values(count);
  std::vector<Int> expected(count);
  Errc errc = Errc::kOk;
  Errc expected_errc = Errc::kOk;
  const std::uint8_t* after = decode(packed, count, values.data(), &errc);
  const std::uint8_t* expected_after =
      portable(packed, count, expected.data(), &expected_errc);
  if (after != expected_after || errc != expected_errc) std::abort();
  if (after != nullptr && values != expected) std::abort();
}

void compare_lists(const VarintKernel& kernel, const VarintKernel& portable,
                   const std::vector<std::uint8_t>& packed) {
  constexpr std::size_t kSlackBytes = BytesWithSlack::kSlackBytes;
  std::vector<std::uint8_t> room(packed.size() + 2 * kSlackBytes, 0xff);
  std::copy(packed.begin(), packed.end(), room.begin() + kSlackBytes);
  std::vector<std::int64_t> values(packed.size() + kSpareValues);
  std::vector<std::int64_t> expected = values;
  const std::uint8_t* const list = room.data() + kSlackBytes;
  const std::size_t n = kernel.decode_list(list, packed.size(), values.data());
  if (n != portable.decode_list(list, packed.size(), expected.data())) std::abort();
  if (n == kNotDecoded) return;
  if (!std::equal(values.data(), values.data() + n, expected.data())) std::abort();
}

}  // namespace
}  // namespace fastrec

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace fastrec;
  if (size < kChoicesBytes) return 0;
  static const std::vector<VarintKernel> kernels = kernels_and_emulated();
  const std::size_t k = input[2] / 16 % kernels.size();
  const bool is_emulated = k + 1 == kernels.size();
  const int n_repetitions = input[2] % (is_emulated ? 2 : 16) + 1;
  const Bytes pattern(input + kChoicesBytes, size - kChoicesBytes);
  std::vector<std::uint8_t> packed;
  packed.reserve(pattern.size() * static_cast<std::size_t>(n_repetitions));
  for (int i = 0; i < n_repetitions; ++i) {
    packed.insert(packed.end(), pattern.begin(), pattern.end());
  }

  const VarintKernel& kernel = kernels[k];
  const VarintKernel& portable = varint_kernels().back();
  const std::size_t n_ends = portable.count(packed);
  if (kernel.count(packed) != n_ends) std::abort();
  const unsigned choices = load_le<std::uint16_t>(input);
  const std::size_t n = choices >> 15 == 0 ? n_ends : choices % 2048;
  switch (choices >> 11 & 3) {
    case 0:
      compare(kernel.decode_int64, portable.decode_int64, packed, n);
      break;
    case 1:
      compare(kernel.decode_int32, portable.decode_int32, packed, n);
      break;
    default:
      compare_lists(kernel, portable, packed);
  }
  return 0;
}
