// libFuzzer entry: any bytes, as the content of a compressed file.
//
// Goal: a FrameStream returns the frames of a scan, and the same fault or a gap there,
// with and without payloads. Method: the first byte selects the sizes of the chunks, the
// recovery, whether frames are copied, and whether payloads are also left out. Mutations
// keep the checksums of frames valid (mutate.h).

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mutate.h"
#include "record/framing.h"
#include "record/scan.h"
#include "record/stream.h"

namespace {

using namespace fastrec;

// Calls `piece(bytes)` for each piece of `file`, whose sizes depend on `seed`.
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

// The number of frames that a recovery keeps: all, except a last one with a damaged
// payload and an unverified end.
std::size_t n_left(Bytes file, const ScanResult& whole) {
  const std::size_t n = whole.offsets.size() - 1;
  if (n == 0 || !whole.fault || whole.fault.code == Errc::kTruncatedPayload) return n;
  const std::uint64_t begin = whole.offsets[n - 1], end = whole.offsets[n];
  return check_payload(file.subspan(begin, end - begin)) ? n - 1 : n;
}

FrameStream frames_of(Bytes file, unsigned seed, Recovery recovery) {
  auto streams = std::make_shared<ByteStreams>(1, 1, SIZE_MAX);
  (void)streams->begin();
  in_pieces(file, seed, [&](Bytes piece) { (void)streams->push(0, piece); });
  streams->end(0);
  static const auto names = std::make_shared<FileTable>(
      std::vector<std::string>{"file"}, std::vector<Io>{Io::kAuto});
  return FrameStream(streams, names, {0}, {}, recovery);
}

void check_frames(Bytes file, unsigned seed, const ScanResult& whole,
                  Recovery recovery) {
  FrameStream stream = frames_of(file, seed, recovery);
  // For half of the seeds, the same without payloads, with the same result.
  const bool is_verifying = seed / 2 % 2 == 0;
  std::optional<FrameStream> verifying;
  if (is_verifying) verifying.emplace(frames_of(file, seed, recovery));
  // The frames are in the memory of the stream, or copied from it.
  const bool is_in_place = seed / 4 % 2 == 0;
  std::size_t i = 0;
  std::vector<std::uint8_t> copied;
  StreamRecord record;
  const auto next = [&] {
    if (is_in_place) return stream.next(&record);
    copied.clear();
    const bool is_found = stream.next(SIZE_MAX, &record.place, &copied);
    record.frame = copied;
    return is_found;
  };
  FrameStream::Verified verified;
  Errc errc = Errc::kOk, errc_verifying = Errc::kOk;
  try {
    while (next()) {
      if (i + 1 >= whole.offsets.size()) std::abort();
      const std::uint64_t begin = whole.offsets[i], end = whole.offsets[i + 1];
      if (record.place.record != i || record.place.frame.offset != begin) std::abort();
      const Bytes expected = file.subspan(begin, end - begin);
      if (!std::ranges::equal(record.frame, expected)) std::abort();
      const bool is_damaged = bool(check_payload(expected));
      if (is_in_place && bool(record.fault) != is_damaged) std::abort();
      if (is_verifying) {
        if (!verifying->verify(&verified)) std::abort();
        if (verified.place.frame.end() != end || verified.place.record != i)
          std::abort();
        if (bool(verified.fault) != is_damaged) std::abort();
      }
      ++i;
    }
  } catch (const Error& error) {
    errc = error.code;
    const bool is_damage = errc != Errc::kCompressed && errc != Errc::kRecordTooLarge;
    if (recovery != Recovery::kNone && is_damage) std::abort();
  }
  try {
    if (is_verifying && verifying->verify(&verified)) std::abort();
  } catch (const Error& error) {
    errc_verifying = error.code;
  }
  if (is_verifying && errc != errc_verifying) std::abort();
  bool is_whole = errc == Errc::kOk;
  const std::vector<SkippedSpan> gaps = stream.take_gaps();
  for (const SkippedSpan& gap : gaps) {
    is_whole = false;
    if (gap.begin != whole.offsets[i] || gap.record != i) std::abort();
  }
  const auto is_same_gap = [](const SkippedSpan& a, const SkippedSpan& b) {
    return a.begin == b.begin && a.end == b.end;
  };
  if (is_verifying && !std::ranges::equal(gaps, verifying->take_gaps(), is_same_gap))
    std::abort();
  const bool is_all = recovery == Recovery::kNone;
  if (i != (is_all ? whole.offsets.size() - 1 : n_left(file, whole)) ||
      is_whole == bool(whole.fault))
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes file(data + 1, size - 1);
  ScanProgress progress;
  const ScanResult whole =
      scan_mapped(file, {0, file.size()}, 1, {~std::uint64_t{0}, 1}, &progress);
  check_frames(file, data[0], whole,
               data[0] < 0x80 ? Recovery::kNone : Recovery::kSkip);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  testing::Mutator mutator(seed);
  const std::string mutated = mutator.choice_and_file({data, size});
  return testing::replace_input(mutated, data, max_size);
}
