// libFuzzer entry: some bytes, and a run (runs.h) of any bytes, read as TFRecord files.
//
// Goal: the steps of an epoch that searches for frames ahead of its claims have the
// records of a plain walk, and an error or a gap belongs to the step of its record.
// Method: the first bytes select the I/O, the recovery, the steps, and windows of a few
// bytes. Mutations keep the checksums of frames valid (mutate.h).

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "claim_steps.h"
#include "loader/walked_claims.h"
#include "memory_file.h"
#include "mutate.h"
#include "places.h"
#include "runs.h"

namespace {

using namespace fastrec;

struct Choices {
  Recovery recovery;
  Io io;
  bool drop_last;
  std::uint64_t batch_size;
  std::uint64_t first_step;
  ScanWindows windows;
};
constexpr std::size_t kChoicesBytes = 3;

Choices choices_of(const std::uint8_t* bytes) {
  constexpr Recovery kRecoveries[] = {Recovery::kNone, Recovery::kSkip,
                                      Recovery::kResync};
  const std::uint64_t window = std::uint64_t{1} << (bytes[2] % 16);
  return {.recovery = kRecoveries[bytes[0] % 3],
          .io = bytes[0] / 3 % 4 == 0 ? Io::kPread : Io::kMmap,
          .drop_last = bytes[0] / 12 % 4 == 0,
          .batch_size = 1 + bytes[1] % 8u,
          .first_step = bytes[1] / 8 % 8 == 0 ? 1 + bytes[1] / 64 % 4u : 0,
          .windows = {window, window << (bytes[2] / 16)}};
}

// The records from the first step on, the gaps, and the error after them.
struct Epoch {
  std::vector<Place> places;
  std::vector<SkippedSpan> gaps;
  Errc errc = Errc::kOk;
  std::string reason;

  void add_gaps(std::vector<SkippedSpan> found) {
    if (gaps.empty()) return gaps.swap(found);
    std::ranges::move(found, std::back_inserter(gaps));
  }
  void fail(const Error& error) {
    errc = error.code;
    reason = error.what();
  }
};

bool is_same(const Place& a, const Place& b) {
  return a.file == b.file && a.record == b.record && a.frame.offset == b.frame.offset &&
         a.frame.length == b.frame.length;
}

bool is_same_gap(const SkippedSpan& a, const SkippedSpan& b) {
  return a.error.path == b.error.path && a.begin == b.begin && a.end == b.end;
}

Epoch walk(FileTable* files, const Choices& choices) {
  Epoch epoch;
  FrameWalk walk(choices.recovery);
  std::uint64_t n_before = choices.first_step * choices.batch_size;
  try {
    for (std::size_t file = 0; file < files->size(); ++file) {
      walk.start(*files->open(file));
      Frame frame;
      for (std::uint64_t record = 0; walk.next(&frame); ++record) {
        if (n_before > 0) {
          --n_before;
        } else {
          epoch.places.push_back({file, record, frame});
        }
      }
      epoch.add_gaps(walk.take_gaps());
    }
  } catch (const Error& error) {
    epoch.fail(error);
  }
  return epoch;
}

// Aborts if a step but the last one is not full.
Epoch claim(const std::shared_ptr<FileTable>& files, const Choices& choices) {
  Epoch epoch;
  WalkedClaims claims(
      files, {.batch_size = choices.batch_size, .drop_last = choices.drop_last},
      choices.recovery, choices.first_step, choices.windows);
  std::uint64_t step = choices.first_step;
  bool is_last = false;
  try {
    while (true) {
      Claim claim;
      if (!testing::claim_step(&claims, &claim)) break;
      claims.locate(&claim);
      const std::vector<Place> places = testing::places_of(claim.frames);
      const std::uint64_t n = places.size();
      if (is_last || n == 0 || n > choices.batch_size) std::abort();
      if (claim.step != step++ || claim.n_rows != n) std::abort();
      is_last = n < choices.batch_size;
      epoch.places.insert(epoch.places.end(), places.begin(), places.end());
    }
  } catch (const Error& error) {
    if (is_last) std::abort();
    epoch.fail(error);
  }
  epoch.add_gaps(claims.take_gaps());
  return epoch;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMaxFiles = 2;
  static testing::MemoryFile memory[kMaxFiles];
  if (size < kChoicesBytes) return 0;
  const Choices choices = choices_of(data);
  const Bytes run(data + kChoicesBytes, size - kChoicesBytes);
  std::vector<std::string> paths;
  for (const Bytes piece : testing::pieces_of(run)) {
    if (paths.size() == kMaxFiles) break;
    memory[paths.size()].write(piece);
    paths.push_back(memory[paths.size()].path());
  }
  if (paths.empty()) return 0;
  const auto files =
      std::make_shared<FileTable>(std::move(paths), std::vector<Io>{choices.io});

  Epoch expected = walk(files.get(), choices);
  const Epoch found = claim(files, choices);
  // An incomplete step before an error, or the last one with drop_last, is not claimed.
  if (expected.errc != Errc::kOk || choices.drop_last) {
    const std::size_t n = expected.places.size();
    expected.places.resize(n - n % choices.batch_size);
  }
  if (found.errc != expected.errc || found.reason != expected.reason) std::abort();
  if (!std::ranges::equal(found.places, expected.places, is_same)) std::abort();
  if (!std::ranges::equal(found.gaps, expected.gaps, is_same_gap)) std::abort();
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  testing::Mutator mutator(seed);
  std::string head(as_text({data, std::min(size, kChoicesBytes)}));
  head.resize(kChoicesBytes);
  const Bytes run(data + std::min(size, kChoicesBytes),
                  size - std::min(size, kChoicesBytes));
  if (mutator.one_in(12)) {
    head[mutator.below(kChoicesBytes)] = static_cast<char>(mutator.below(256));
    return testing::replace_input(head + std::string(as_text(run)), data, max_size);
  }
  const auto mutate = [&](const std::string& piece, std::size_t) {
    return mutator.file(piece);
  };
  return testing::replace_input(head + mutator.run(run, mutate), data, max_size);
}
