// libFuzzer entry: any bytes at all, read as a TFRecord file.
//
// A scan in small segments must find what a scan in one finds, and every frame it names
// must lie inside the file.

#include <cstdlib>

#include "record/framing.h"
#include "record/scan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fastrec;
  const Bytes file(data, size);
  ScanProgress progress;
  const ScanResult whole = scan_mapped(file, 1, {~std::uint64_t{0}, 1}, &progress);
  const ScanResult cut = scan_mapped(file, 1, {8, 16}, &progress);
  if (whole.offsets != cut.offsets || whole.fault.code != cut.fault.code) std::abort();
  for (std::size_t i = 0; i + 1 < whole.offsets.size(); ++i) {
    const std::uint64_t begin = whole.offsets[i], end = whole.offsets[i + 1];
    if (end > size || end - begin < kFrameBytes) std::abort();
    (void)check_payload(file.subspan(begin, end - begin));
  }
  (void)recognize(file);
  return 0;
}
