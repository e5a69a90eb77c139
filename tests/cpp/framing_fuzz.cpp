// libFuzzer entry: any bytes, read as a TFRecord file.
//
// Goal: a scan in small segments matches a scan in one segment, and every frame is
// inside the file. Method: mutations keep the checksums of frames valid (mutate.h), and
// put TFRecord files into payloads, where segments find false frames.

#include <cstdlib>
#include <string>

#include "mutate.h"
#include "record/framing.h"
#include "record/scan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fastrec;
  const Bytes file(data, size);
  ScanProgress progress;
  const ScanResult whole =
      scan_mapped(file, {0, file.size()}, 1, {~std::uint64_t{0}, 1}, &progress);
  const ScanResult cut = scan_mapped(file, {0, file.size()}, 1, {8, 16}, &progress);
  if (whole.offsets != cut.offsets || whole.fault.code != cut.fault.code) std::abort();
  if (whole.fault.offset != cut.fault.offset) std::abort();
  if (!whole.fault && whole.offsets.back() != size) std::abort();
  for (std::size_t i = 0; i + 1 < whole.offsets.size(); ++i) {
    const std::uint64_t begin = whole.offsets[i], end = whole.offsets[i + 1];
    if (end > size || end - begin < kFrameBytes) std::abort();
    (void)check_payload(file.subspan(begin, end - begin));
  }
  Fault fault = whole.fault;
  if (describe_foreign(recognize(file), &fault).empty()) std::abort();
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace fastrec;
  testing::Mutator mutator(seed);
  return testing::replace_input(mutator.file(as_text({data, size})), data, max_size);
}
