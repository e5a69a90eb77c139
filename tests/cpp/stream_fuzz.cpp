// libFuzzer entry: any bytes at all, as they come out of a compressed file.
//
// The first byte says in which pieces the others arrive. Whatever they are, a
// FrameStream and a StreamScan must find the frames that a scan of the whole finds, and
// a fault where it finds one, or a gap. Mutations keep the checksums of frames right
// (mutate.h).

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "mutate.h"
#include "record/framing.h"
#include "record/scan.h"
#include "record/stream.h"

namespace {

using namespace fastrec;

// Calls `piece(bytes)` for each piece of `file`. Sizes follow from `seed`.
template <typename F>
void in_pieces(Bytes file, unsigned seed, F piece) {
  unsigned state = seed;
  while (!file.empty()) {
    state = state * 1103515245 + 12345;
    const std::size_t most = seed % 2 ? 40 : 4000;
    const std::size_t n = std::min(file.size(), 1 + (state >> 16) % most);
    piece(file.first(n));
    file = file.subspan(n);
  }
}

// How many frames a recovery leaves: all, or all but a last one whose payload is
// damaged and whose end nothing proves.
std::size_t n_left(Bytes file, const ScanResult& whole) {
  const std::size_t n = whole.offsets.size() - 1;
  if (n == 0 || !whole.fault || whole.fault.code == Errc::kTruncatedPayload) return n;
  const std::uint64_t begin = whole.offsets[n - 1], end = whole.offsets[n];
  return check_payload(file.subspan(begin, end - begin)) ? n - 1 : n;
}

void check_frames(Bytes file, unsigned seed, const ScanResult& whole,
                  Recovery recovery) {
  auto streams = std::make_shared<ByteStreams>(1, 1, SIZE_MAX);
  (void)streams->begin();
  in_pieces(file, seed, [&](Bytes piece) { (void)streams->push(0, piece); });
  streams->end(0);
  auto names = std::make_shared<FileTable>(std::vector<std::string>{"file"},
                                           std::vector<Io>{Io::kAuto});
  FrameStream stream(streams, names, {0}, {}, recovery);
  std::size_t i = 0;
  std::vector<std::uint8_t> frame;
  Place place;
  bool is_whole = true;
  try {
    while (stream.next(SIZE_MAX, &place, &frame)) {
      if (i + 1 >= whole.offsets.size()) std::abort();
      const std::uint64_t begin = whole.offsets[i], end = whole.offsets[i + 1];
      if (place.record != i || place.frame.offset != begin) std::abort();
      if (!std::ranges::equal(frame, file.subspan(begin, end - begin))) std::abort();
      ++i;
      frame.clear();
    }
  } catch (const Error& error) {
    is_whole = false;
    const bool is_damage =
        error.code != Errc::kCompressed && error.code != Errc::kRecordTooLarge;
    if (recovery != Recovery::kNone && is_damage) std::abort();
  }
  for (const Gap& gap : stream.take_gaps()) {
    is_whole = false;
    if (gap.begin != whole.offsets[i] || gap.record != i) std::abort();
  }
  const bool is_all = recovery == Recovery::kNone;
  if (i != (is_all ? whole.offsets.size() - 1 : n_left(file, whole)) ||
      is_whole == bool(whole.fault))
    std::abort();
}

void check_scan(Bytes file, unsigned seed, const ScanResult& whole) {
  StreamScan scan("file");
  bool is_whole = true;
  try {
    in_pieces(file, seed, [&](Bytes piece) { scan.feed(piece); });
    scan.finish();
  } catch (const Error&) {
    is_whole = false;
  }
  if (scan.offsets() != whole.offsets || is_whole == bool(whole.fault)) std::abort();
  if (is_whole) return;
  const bool is_retracted = scan.retract().has_value();
  const std::size_t n = scan.offsets().size() - 1;
  const bool is_too_large = whole.fault.code == Errc::kTruncatedPayload;
  if (n != (is_too_large ? whole.offsets.size() - 1 : n_left(file, whole)))
    std::abort();
  if (is_retracted != (n + 1 < whole.offsets.size())) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes file(data + 1, size - 1);
  ScanProgress progress;
  const ScanResult whole =
      scan_mapped(file, {0, file.size()}, 1, {~std::uint64_t{0}, 1}, &progress);
  check_frames(file, data[0], whole, Recovery::kNone);
  check_frames(file, data[0], whole, Recovery::kSkip);
  check_scan(file, data[0], whole);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  testing::Mutator mutator(seed);
  const std::string mutated = mutator.choice_and_file(as_text({data, size}));
  return testing::replace_input(mutated, data, max_size);
}
