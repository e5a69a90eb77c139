// libFuzzer entry: any bytes, read as a damaged TFRecord file.
//
// Goal: frames and gaps match the definition of each recovery, mapped and by pread, for
// walks and for indexes. Method: a literal implementation of the definition on top of
// plain scans, which tries every byte after a break for a frame. Mutations keep the
// checksums of frames valid (mutate.h). The first byte selects the recovery, the I/O,
// and a walk or an index.

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memory_file.h"
#include "mutate.h"
#include "record/index.h"
#include "record/recovery.h"
#include "record/scan.h"

namespace {

using namespace fastrec;

using Span = std::pair<std::uint64_t, std::uint64_t>;

struct Walked {
  std::vector<Span> frames, gaps;
  bool operator==(const Walked&) const = default;
};

bool is_whole(Bytes file, const Span& frame) {
  return !check_payload(file.subspan(frame.first, frame.second - frame.first));
}

// The first frame from `at` on with two valid checksums, or the end.
std::uint64_t find(Bytes file, std::uint64_t at) {
  for (; file.size() - at >= kFrameBytes; ++at) {
    auto length = load_le<std::uint64_t>(file.data() + at);
    if (length > file.size() - at - kFrameBytes)
      continue;  // most bytes are not a valid length
    if (check_header(file.data() + at, file.size() - at, &length)) continue;
    if (is_whole(file, {at, at + length + kFrameBytes})) return at;
  }
  return file.size();
}

Walked expected(Bytes file, Recovery recovery) {
  Walked walked;
  std::uint64_t at = 0;
  while (at < file.size()) {
    ScanProgress progress;
    const Bytes rest = file.subspan(at);
    const ScanResult chain =
        scan_mapped(rest, {0, rest.size()}, 1, {~std::uint64_t{0}, 1}, &progress);
    const std::size_t n = chain.offsets.size() - 1;
    for (std::size_t i = 0; i < n; ++i) {
      walked.frames.emplace_back(at + chain.offsets[i], at + chain.offsets[i + 1]);
    }
    std::uint64_t begin = at + chain.offsets.back();
    if (!chain.fault) break;
    const bool proves_end = chain.fault.code == Errc::kTruncatedPayload;
    if (n > 0 && !proves_end && !is_whole(file, walked.frames.back())) {
      begin = walked.frames.back().first;
      walked.frames.pop_back();
    }
    at = recovery == Recovery::kResync ? find(file, begin + 1) : file.size();
    walked.gaps.emplace_back(begin, at);
  }
  return walked;
}

Walked walk(const FileView& view, Recovery recovery) {
  FrameWalk frames(recovery);
  frames.start(view);
  Walked walked;
  for (Frame frame; frames.next(&frame);) {
    walked.frames.emplace_back(frame.offset, frame.end());
  }
  for (const SkippedSpan& gap : frames.take_gaps()) {
    walked.gaps.emplace_back(gap.begin, gap.end);
    std::uint64_t n_before = 0;
    while (n_before < walked.frames.size() &&
           walked.frames[n_before].first < gap.begin) {
      ++n_before;
    }
    if (gap.record != n_before || gap.error.reason.empty()) std::abort();
  }
  return walked;
}

Walked indexed(const FileView& view, Recovery recovery) {
  ScanProgress progress;
  const Index index = Index::build(view, 1, &progress, recovery);
  Walked walked;
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    walked.frames.emplace_back(index.frame(i).offset, index.frame(i).end());
  }
  for (const SkippedSpan& gap : index.gaps())
    walked.gaps.emplace_back(gap.begin, gap.end);
  return walked;
}

// The result of `read`, or the code of its Error.
template <typename F>
std::pair<Walked, Errc> outcome_of(F read) {
  try {
    return {read(), Errc::kOk};
  } catch (const Error& error) {
    return {{}, error.code};
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static testing::MemoryFile memory;
  const Bytes file(data + 1, size - 1);
  memory.write(file);
  constexpr Recovery kRecoveries[] = {Recovery::kNone, Recovery::kSkip,
                                      Recovery::kResync};
  const Recovery recovery = kRecoveries[data[0] % 3];
  const FileView view(memory.path(), data[0] / 3 % 2 == 0 ? Io::kMmap : Io::kPread);

  const bool is_walk = data[0] / 6 % 2 == 0;
  const auto walked = outcome_of(
      [&] { return is_walk ? walk(view, recovery) : indexed(view, recovery); });
  const Walked wanted = expected(file, recovery);
  if (walked.second == Errc::kOk) {
    if (walked.first != wanted) std::abort();
    if (recovery == Recovery::kNone && !wanted.gaps.empty()) std::abort();
  } else if (wanted.gaps.empty() ||
             (recovery != Recovery::kNone && walked.second != Errc::kCompressed)) {
    std::abort();
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  testing::Mutator mutator(seed);
  const std::string mutated = mutator.choice_and_file({data, size});
  return testing::replace_input(mutated, data, max_size);
}
