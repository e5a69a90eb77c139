// Claims of an epoch without an index, against the plain walk.
//
// Goal: for every window size and number of threads, each step has the records of a
// plain walk, and an error belongs to the step of its record. Method: random files
// whose
// payloads contain frames, truncated and damaged; FrameWalk is the oracle.

#include "loader/walked_claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "claim_steps.h"
#include "places.h"
#include "records.h"

namespace fastrec {
namespace {

using Row = std::tuple<std::size_t, std::uint64_t, std::uint64_t, std::uint64_t>;

struct Steps {
  std::vector<std::vector<Row>> rows;  // of each step
  std::string error;                   // of the next step
};

Row row_of(const Place& place) {
  return {place.file, place.record, place.frame.offset, place.frame.length};
}

// The records from `first` on in steps of `batch_size`.
Steps walk(FileTable* files, Recovery recovery, std::uint64_t batch_size,
           std::uint64_t n_before) {
  Steps steps;
  std::vector<Row> rows;
  try {
    for (std::size_t file = 0; file < files->size(); ++file) {
      const auto view = files->open(file);
      FrameWalk walk(recovery);
      walk.start(*view);
      Frame frame;
      for (std::uint64_t record = 0; walk.next(&frame); ++record) {
        if (n_before > 0) {
          --n_before;
          continue;
        }
        rows.push_back(row_of({file, record, frame}));
        if (rows.size() == batch_size) steps.rows.push_back(std::exchange(rows, {}));
      }
    }
    if (!rows.empty()) steps.rows.push_back(std::move(rows));
  } catch (const Error& error) {
    steps.error = error.what();
  } catch (const IoError& error) {
    steps.error = error.what();
  }
  return steps;
}

// Claims all steps in `n_threads` threads, as a pipeline does.
Steps claim(WalkedClaims* claims, std::uint64_t first_step, unsigned n_threads) {
  Steps steps;
  std::mutex collecting;
  const auto end = [&](const std::exception& error) {
    const std::lock_guard lock(collecting);
    steps.error = error.what();
  };
  const auto run = [&] {
    while (true) {
      Claim claim;
      try {
        if (!testing::claim_step(claims, &claim)) return;
      } catch (const Error& error) {
        return end(error);
      } catch (const IoError& error) {
        return end(error);
      }
      claims->locate(&claim);
      const std::lock_guard lock(collecting);
      const std::size_t step = claim.step - first_step;
      if (steps.rows.size() <= step) steps.rows.resize(step + 1);
      for (const Place& place : testing::places_of(claim.frames)) {
        steps.rows[step].push_back(row_of(place));
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < n_threads; ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
  return steps;
}

class WalkedClaimsTest : public ::testing::TestWithParam<Io> {
 protected:
  std::shared_ptr<FileTable> write(const std::vector<std::string>& contents) {
    std::vector<std::string> paths;
    for (const std::string& content : contents) {
      paths.push_back(directory_.write(std::to_string(n_files_++), content));
    }
    return std::make_shared<FileTable>(std::move(paths), std::vector<Io>{GetParam()});
  }

  void check(const std::shared_ptr<FileTable>& files, std::uint64_t batch_size,
             std::uint64_t first_step, Recovery recovery, ScanWindows windows,
             unsigned n_threads) {
    const Steps expected =
        walk(files.get(), recovery, batch_size, first_step * batch_size);
    WalkedClaims claims(files, {.batch_size = batch_size}, recovery, first_step,
                        windows);
    const Steps found = claim(&claims, first_step, n_threads);
    ASSERT_EQ(found.rows, expected.rows);
    ASSERT_EQ(found.error, expected.error);
  }

  testing::TemporaryDirectory directory_;
  int n_files_ = 0;
};

std::string random_file(std::mt19937* random, std::size_t n_records) {
  std::string file;
  for (std::size_t i = 0; i < n_records; ++i) {
    std::string payload((*random)() % 150, '\0');
    if ((*random)() % 2 != 0) {
      payload =
          testing::file_of({payload, "", "nested"}).substr(0, 20 + payload.size());
    }
    file += testing::frame_of(payload);
  }
  return file;
}

TEST_P(WalkedClaimsTest, EveryStepIsThatOfThePlainWalk) {
  std::mt19937 random(1);
  for (int round = 0; round < 150; ++round) {
    std::vector<std::string> contents;
    for (std::size_t i = random() % 5; i > 0; --i) {
      contents.push_back(random_file(&random, random() % 40));
    }
    if (round % 3 == 1 && !contents.empty()) {
      std::string& cut = contents[random() % contents.size()];
      cut.resize(cut.size() - random() % (cut.size() + 1));
    }
    const auto files = write(contents);
    for (const unsigned n_threads : {1u, 3u}) {
      const ScanWindows windows{1 + random() % 300, 1 + random() % 2000};
      const Recovery recovery = round % 2 == 0 ? Recovery::kNone : Recovery::kResync;
      check(files, 1 + random() % 20, random() % 4, recovery, windows, n_threads);
    }
  }
}

TEST_P(WalkedClaimsTest, DamageAnywhereComesInTheStepOfItsRecord) {
  std::mt19937 random(2);
  const std::string good = random_file(&random, 24);
  const std::string next = random_file(&random, 5);
  for (std::size_t at = 0; at < good.size(); at += 3) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    const auto files = write({next, bad, next});
    for (const unsigned n_threads : {1u, 2u}) {
      check(files, 4, 0, Recovery::kNone, {64, 512}, n_threads);
    }
    check(files, 4, 0, Recovery::kSkip, {64, 512}, 1);
  }
}

TEST_P(WalkedClaimsTest, AFrameLargerThanAWindowIsOneOfItsFrames) {
  const std::string large(10'000, 'x');
  const auto files = write({testing::file_of({"a", large, large, "b", large}), "",
                            testing::file_of({large})});
  for (const std::uint64_t bytes : {1u, 100u, 9'000u, 50'000u}) {
    check(files, 2, 0, Recovery::kNone, {bytes, bytes}, 2);
  }
}

TEST_P(WalkedClaimsTest, AFileThatIsMissingIsAnErrorBehindTheOthers) {
  const auto files = write({testing::file_of({"a", "b", "c"}), "d"});
  std::filesystem::remove(directory_.file("1"));
  check(files, 2, 0, Recovery::kNone, {}, 2);
}

TEST_P(WalkedClaimsTest, TheLastStepIsLeftOutWhereItIsNotFull) {
  WalkedClaims claims(write({testing::file_of({"a", "b", "c"})}),
                      {.batch_size = 2, .drop_last = true});
  EXPECT_EQ(claim(&claims, 0, 1).rows.size(), 1u);
}

TEST_P(WalkedClaimsTest, StopEndsASearchFromAnotherThread) {
  std::mt19937 random(3);
  const auto files = write({random_file(&random, 2000)});
  WalkedClaims claims(files, {.batch_size = 1}, Recovery::kNone, 0, {1, 1});
  std::thread stopper([&] { claims.stop(); });
  (void)claim(&claims, 0, 3);
  stopper.join();
}

// A truncated file loses the pages that the walk has not touched yet.
TEST(WalkedClaims, PagesThatWereLostEndTheStepsBeforeThem) {
  const testing::TemporaryDirectory directory;
  std::string content;
  for (int i = 0; i < 3000; ++i) content += testing::frame_of(std::string(100, 'x'));
  const std::string path = directory.write("data", content);
  const auto files = std::make_shared<FileTable>(std::vector<std::string>{path},
                                                 std::vector<Io>{Io::kMmap});
  WalkedClaims claims(files, {.batch_size = 10}, Recovery::kNone, 0,
                      {1 << 16, 1 << 18});
  Claim claim;
  ASSERT_TRUE(testing::claim_step(&claims, &claim));
  std::filesystem::resize_file(path, 196'608);
  std::uint64_t n_records = 10;
  try {
    while (testing::claim_step(&claims, &claim)) {
      claims.locate(&claim);
      n_records += claim.frames.size();
    }
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::kFileChanged);
    EXPECT_GE(*error.offset, 196'608u);
  }
  EXPECT_EQ(n_records, 1690u);  // 196,608 bytes, 12 whole pages of 16 KiB, hold 1,694
}

INSTANTIATE_TEST_SUITE_P(Io, WalkedClaimsTest,
                         ::testing::Values(Io::kMmap, Io::kPread));

}  // namespace
}  // namespace fastrec
