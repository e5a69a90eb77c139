// Tests of RangeRequests.
//
// Goal: readers get exactly the bytes of the file, for any order of reads, hints,
// completions and failures; memory is bounded; every wait ends. Method: fetchers copy
// from strings that stand for remote files, on threads, or step by step in the test.

#include "file/range_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/interrupt.h"
#include "claim_steps.h"
#include "file/file_view.h"
#include "loader/claims.h"
#include "loader/order.h"
#include "loader/walked_claims.h"
#include "places.h"
#include "record/catalog.h"
#include "record/index.h"
#include "record/reader.h"
#include "record/scan.h"
#include "records.h"

namespace fastrec {
namespace {

using namespace std::chrono_literals;
using testing::file_of;

class Outage : public std::exception {};

std::string noise(std::size_t n_bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(n_bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// Counts the bytes that fetchers have provided and that were not released.
struct Memory {
  std::atomic<std::int64_t> n_bytes{0};
};

// Completes `request` with the bytes of its file.
void complete(RangeRequests& requests, const std::vector<std::string>& files,
              const RangeRequest& request, Memory* memory = nullptr) {
  auto bytes = std::make_shared<std::string>(
      files[request.file].substr(request.begin, request.end - request.begin));
  const Bytes view = as_bytes(*bytes);
  if (memory == nullptr) return requests.complete(request.id, view, bytes);
  const auto n = static_cast<std::int64_t>(view.size());
  memory->n_bytes += n;
  requests.complete(
      request.id, view,
      RangeRequests::Owner(bytes->data(), [&requests, bytes, memory, n](auto*) {
        memory->n_bytes -= n;
        // Bytes are never released under the lock.
        (void)requests.counts();
      }));
}

std::optional<RangeRequest> take(RangeRequests& requests) { return requests.take(0ms); }

// Threads that fetch until the requests are stopped. A request for which `fails` is true
// fails with an Outage.
class Fetchers {
 public:
  Fetchers(RangeRequests* requests, const std::vector<std::string>* files, int n,
           std::function<bool(const RangeRequest&)> fails = {},
           Memory* memory = nullptr)
      : requests_(requests) {
    for (int i = 0; i < n; ++i) {
      threads_.emplace_back([=] {
        while (true) {
          const auto request = requests->take(std::nullopt);
          if (!request) return;
          if (fails && fails(*request)) {
            requests->fail(request->id, std::make_exception_ptr(Outage()));
          } else {
            complete(*requests, *files, *request, memory);
          }
        }
      });
    }
  }
  ~Fetchers() {
    requests_->stop();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  RangeRequests* requests_;
  std::vector<std::thread> threads_;
};

std::string copy_of(RangeRequests& requests, std::size_t file, std::uint64_t offset,
                    std::size_t n) {
  Buffer buffer;
  return std::string(as_text(requests.read(file, offset, n, &buffer)));
}

TEST(RangeRequestsTest, ReadersGetTheBytesOfTheFile) {
  const std::vector<std::string> files = {noise(200'000, 1), noise(70'000, 2)};
  for (const std::uint64_t memory_bytes : {1'000ULL, 20'000ULL, 1'000'000ULL}) {
    Memory memory;
    const auto shared =
        std::make_shared<RangeRequests>(RangeLimits{.memory_bytes = memory_bytes,
                                                    .range_bytes = 4'000,
                                                    .gap_bytes = 100,
                                                    .pinned_bytes_min = 150});
    RangeRequests& requests = *shared;
    const Fetchers fetchers(&requests, &files, 3, {}, &memory);
    std::vector<std::thread> readers;
    std::atomic<int> n_wrong{0};
    for (unsigned seed = 0; seed < 4; ++seed) {
      readers.emplace_back([&, seed] {
        std::mt19937 random(seed);
        for (int i = 0; i < 400; ++i) {
          const std::size_t file = random() % files.size();
          const std::string& text = files[file];
          const std::size_t offset = random() % text.size();
          const std::size_t n_max = random() % 8 == 0 ? 30'000 : 300;
          const std::size_t n = std::min(random() % n_max, text.size() - offset);
          if (random() % 3 == 0) {
            requests.read_ahead(file, offset, n);
          } else if (random() % 3 == 0) {
            const FileRange range{file, offset, offset + n};
            std::vector<std::uint8_t> copied(n);
            const bool is_here = requests.copy({&range, 1}, copied) == 1;
            n_wrong +=
                is_here &&
                text.compare(offset, n, reinterpret_cast<const char*>(copied.data()),
                             n) != 0;
          } else {
            n_wrong += copy_of(requests, file, offset, n) != text.substr(offset, n);
          }
          if (random() % 100 == 0) requests.withdraw_hints();
        }
      });
    }
    for (std::thread& reader : readers) reader.join();
    EXPECT_EQ(n_wrong, 0);
  }
}

TEST(RangeRequestsTest, HintsAreDividedAndAdjacentOnesAreJoined) {
  RangeRequests requests({1'000'000, 4'000, 100});
  requests.read_ahead(0, 1'000, 10'000);
  for (const auto& [begin, end] :
       {std::pair{1'000, 5'000}, {5'000, 9'000}, {9'000, 11'000}}) {
    const auto request = take(requests);
    ASSERT_TRUE(request);
    EXPECT_EQ(request->begin, begin);
    EXPECT_EQ(request->end, end);
  }
  EXPECT_FALSE(take(requests));
  // In any order, with gaps of up to 100 bytes; but not across files.
  for (const std::uint64_t offset : {300U, 100U, 200U, 450U, 700U}) {
    requests.read_ahead(1, offset, 60);
  }
  requests.read_ahead(2, 0, 60);
  const auto joined = take(requests);
  ASSERT_TRUE(joined);
  EXPECT_EQ(joined->file, 1U);
  EXPECT_EQ(joined->begin, 100U);
  EXPECT_EQ(joined->end, 510U);
  EXPECT_EQ(take(requests)->begin, 700U);
  EXPECT_EQ(take(requests)->file, 2U);
}

TEST(RangeRequestsTest, SmallRangesAreCopiedTogetherUpToTheFirstMissingOne) {
  const std::vector<std::string> files = {noise(9'000, 3), noise(5'000, 4)};
  RangeRequests requests;
  {
    const Fetchers fetchers(&requests, &files, 2);
    copy_of(requests, 0, 1'000, 2'000);
    copy_of(requests, 1, 0, 400);
    const FileRange ranges[] = {{0, 1'500, 1'600},
                                {1, 0, 100},
                                {0, 2'990, 3'000},
                                {0, 2'999, 3'001},
                                {1, 5, 6}};
    std::vector<std::uint8_t> copied(213);
    EXPECT_EQ(requests.copy(ranges, copied), 3U);
    const std::string wanted = files[0].substr(1'500, 100) + files[1].substr(0, 100) +
                               files[0].substr(2'990, 10);
    EXPECT_EQ(std::string(copied.begin(), copied.begin() + 210), wanted);
    EXPECT_EQ(requests.copy({ranges, 0}, copied), 0U);
  }
  EXPECT_EQ(requests.counts().n_requests, 2U);
}

TEST(RangeRequestsTest, BytesAreRequestedOnce) {
  const std::vector<std::string> files = {noise(9'000, 3)};
  RangeRequests requests({1'000'000, 4'000, 100});
  requests.read_ahead(0, 0, 6'000);
  requests.read_ahead(0, 2'000, 7'000);
  std::uint64_t n_bytes = 0;
  while (const auto request = take(requests)) {
    n_bytes += request->end - request->begin;
    complete(requests, files, *request);
  }
  EXPECT_EQ(n_bytes, 9'000U);
  EXPECT_EQ(copy_of(requests, 0, 0, 9'000), files[0]);
  EXPECT_FALSE(take(requests));
  EXPECT_EQ(requests.counts().n_bytes, 9'000U);
}

TEST(RangeRequestsTest, BytesThatAReaderWaitsForComeFirst) {
  const std::vector<std::string> files = {noise(100'000, 4)};
  RangeRequests requests({1'000'000, 4'000, 100});
  requests.read_ahead(0, 0, 50'000);
  std::thread reader([&] {
    EXPECT_EQ(copy_of(requests, 0, 90'000, 10), files[0].substr(90'000, 10));
  });
  std::optional<RangeRequest> request;
  std::vector<RangeRequest> others;
  // The hints may be taken before the reader asks.
  while (!request) {
    auto taken = take(requests);
    if (taken && taken->begin == 90'000)
      request = taken;
    else if (taken)
      others.push_back(*taken);
    else
      std::this_thread::yield();
  }
  complete(requests, files, *request);
  reader.join();
  // A queued hint that a reader waits for comes before other hints, too.
  requests.read_ahead(0, 60'000, 20'000);
  std::thread second([&] { (void)copy_of(requests, 0, 79'000, 10); });
  bool is_found = false;
  while (!is_found) {
    std::this_thread::sleep_for(1ms);
    const auto taken = take(requests);
    if (taken) complete(requests, files, *taken);
    is_found = taken && taken->end == 80'000;
  }
  second.join();
}

TEST(RangeRequestsTest, HintsWaitForMemory) {
  const std::vector<std::string> files = {noise(100'000, 5)};
  Memory memory;
  RangeRequests requests({10'000, 2'000, 0});
  requests.read_ahead(0, 0, 100'000);
  int n_taken = 0;
  while (const auto request = take(requests)) {
    complete(requests, files, *request, &memory);
    ++n_taken;
  }
  EXPECT_GE(n_taken, 3);
  EXPECT_LE(memory.n_bytes, 10'000);
  // Every byte that is read makes room for another one.
  for (std::size_t at = 0; at < 100'000; at += 500) {
    while (const auto request = take(requests)) {
      complete(requests, files, *request, &memory);
    }
    EXPECT_EQ(copy_of(requests, 0, at, 500), files[0].substr(at, 500));
    EXPECT_LE(memory.n_bytes, 10'000);
  }
  EXPECT_EQ(requests.counts().n_bytes, 100'000U);
}

TEST(RangeRequestsTest, PeekedBytesStay) {
  const std::vector<std::string> files = {noise(100'000, 6)};
  RangeRequests requests({10'000, 2'000, 0});
  const Fetchers fetchers(&requests, &files, 1);
  Buffer buffer;
  (void)requests.read(0, 0, 2'000, &buffer, RangeRequests::Use::kPeek);
  requests.read_ahead(0, 2'000, 50'000);
  for (std::size_t at = 2'000; at < 40'000; at += 100)
    (void)copy_of(requests, 0, at, 100);
  const std::uint64_t before = requests.counts().n_requests;
  EXPECT_EQ(copy_of(requests, 0, 0, 2'000), files[0].substr(0, 2'000));
  EXPECT_LE(requests.counts().n_requests, before + 6);  // of the hints
}

TEST(RangeRequestsTest, LargeReadsUseTheBytesInPlace) {
  const std::vector<std::string> files = {noise(100'000, 12)};
  Memory memory;
  const auto requests = std::make_shared<RangeRequests>(RangeLimits{
      .memory_bytes = 10'000, .range_bytes = 4'000, .pinned_bytes_min = 1'000});
  const auto read = [&](std::uint64_t offset, std::size_t n, Buffer* buffer) {
    const Bytes bytes = requests->read(0, offset, n, buffer);
    EXPECT_EQ(as_text(bytes), files[0].substr(offset, n));
    return bytes.data();
  };
  Buffer first, second, third;
  {
    const Fetchers fetchers(requests.get(), &files, 1, {}, &memory);
    requests->read_ahead(0, 0, 8'000);
    const std::uint8_t* bytes = read(1'000, 1'500, &first);
    EXPECT_EQ(read(1'500, 1'500, &second), bytes + 500);   // not a copy
    EXPECT_NE(read(1'500, 500, &third), bytes + 500);      // small
    EXPECT_NE(read(3'000, 1'500, &third), bytes + 2'000);  // crosses the end
    // Bytes in use stay, whatever else is read, and count in the memory limit.
    for (std::uint64_t at = 8'000; at < 60'000; at += 1'000) read(at, 500, &third);
    EXPECT_EQ(as_text({bytes, 1'500}), files[0].substr(1'000, 1'500));
    EXPECT_EQ(read(1'500, 1'500, &second), bytes + 500);
  }
  EXPECT_LE(memory.n_bytes, 20'000);
}

TEST(RangeRequestsTest, BytesInUseCountInTheMemoryLimit) {
  const std::vector<std::string> files = {noise(100'000, 13)};
  const auto requests = std::make_shared<RangeRequests>(RangeLimits{
      .memory_bytes = 10'000, .range_bytes = 4'000, .pinned_bytes_min = 1'000});
  const auto complete_all = [&] {
    int n_taken = 0;
    while (const auto request = take(*requests)) {
      complete(*requests, files, *request);
      ++n_taken;
    }
    return n_taken;
  };
  requests->read_ahead(0, 0, 100'000);
  EXPECT_EQ(complete_all(), 2);
  Buffer buffer;
  (void)requests->read(0, 500, 3'000, &buffer);
  (void)copy_of(*requests, 0, 0, 500);
  (void)copy_of(*requests, 0, 3'500, 500);  // all of the first range
  EXPECT_EQ(complete_all(), 0);
  buffer = Buffer();
  EXPECT_EQ(complete_all(), 1);
}

TEST(RangeRequestsTest, ProvidedBytesAreNotRequested) {
  const std::vector<std::string> files = {noise(10'000, 14)};
  RangeRequests requests;
  requests.provide(0, as_bytes(files[0]).first(4'000), nullptr);
  requests.read_ahead(0, 0, 10'000);
  const auto request = take(requests);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->begin, 4'000U);
  complete(requests, files, *request);
  EXPECT_EQ(copy_of(requests, 0, 0, 10'000), files[0]);
}

TEST(RangeRequestsTest, TheFirstRangesAreShort) {
  const std::vector<std::string> files = {noise(100'000, 15)};
  RangeRequests requests({.range_bytes = 8'000, .first_range_bytes = 1'000});
  requests.read_ahead(0, 0, 100'000);
  std::vector<std::uint64_t> sizes;
  while (const auto request = take(requests)) {
    sizes.push_back(request->end - request->begin);
    complete(requests, files, *request);
  }
  EXPECT_EQ(sizes.front(), 1'000U);
  EXPECT_TRUE(std::ranges::is_sorted(sizes.begin(), sizes.end() - 1));
  EXPECT_EQ(std::ranges::max(sizes), 8'000U);
}

TEST(RangeRequestsTest, TheWindowFollowsTheAnswers) {
  const std::vector<std::string> files = {noise(100'000, 16)};
  const auto n_in_flight = [&](std::chrono::milliseconds answer_time) {
    RangeRequests requests({.range_bytes = 1'000,
                            .first_flight_bytes = 8'000,
                            .flight_bytes = 16'000,
                            .answer_time = answer_time});
    requests.read_ahead(0, 0, 100'000);
    std::deque<RangeRequest> taken;
    for (int i = 0; i < 30; ++i) {
      while (const auto request = take(requests)) taken.push_back(*request);
      complete(requests, files, taken.front());
      taken.pop_front();
    }
    return taken.size();
  };
  EXPECT_GT(n_in_flight(std::chrono::hours(1)), 8U);
  EXPECT_LT(n_in_flight(std::chrono::hours(-1)), 4U);
}

TEST(RangeRequestsTest, WithdrawnHintsMakeRoom) {
  const std::vector<std::string> files = {noise(100'000, 7)};
  Memory memory;
  RangeRequests requests({10'000, 2'000, 0});
  const auto complete_all = [&] {
    std::uint64_t last = 0;
    while (const auto request = take(requests)) {
      complete(requests, files, *request, &memory);
      last = request->begin;
    }
    return last;
  };
  requests.read_ahead(0, 0, 50'000);
  EXPECT_LT(complete_all(), 10'000U);
  requests.withdraw_hints();
  requests.read_ahead(0, 80'000, 6'000);
  EXPECT_EQ(complete_all(), 84'000U);
  EXPECT_LE(memory.n_bytes, 10'000);
}

TEST(RangeRequestsTest, AFailureIsThrownInTheReadersThatNeedIt) {
  const std::vector<std::string> files = {noise(10'000, 8)};
  RangeRequests requests({1'000'000, 1'000, 0});
  requests.read_ahead(0, 0, 3'000);
  const auto hint = take(requests);
  requests.fail(hint->id, std::make_exception_ptr(Outage()));  // of a hint: ignored
  std::thread first([&] { EXPECT_THROW((void)copy_of(requests, 0, 500, 10), Outage); });
  std::optional<RangeRequest> again;
  while (!again || again->begin >= 1'000) {
    if (again) complete(requests, files, *again);
    again = take(requests);
    if (!again) std::this_thread::yield();
  }
  requests.fail(again->id, std::make_exception_ptr(Outage()));
  first.join();
  // Other bytes are not affected, and the failed ones can be requested again.
  while (const auto request = take(requests)) complete(requests, files, *request);
  EXPECT_EQ(copy_of(requests, 0, 1'000, 2'000), files[0].substr(1'000, 2'000));
  const Fetchers fetchers(&requests, &files, 1);
  EXPECT_EQ(copy_of(requests, 0, 0, 2'000), files[0].substr(0, 2'000));
}

TEST(RangeRequestsTest, WrongLengthsAreRefused) {
  const std::vector<std::string> files = {noise(1'000, 9)};
  RangeRequests requests;
  requests.read_ahead(0, 0, 1'000);
  const auto request = take(requests);
  EXPECT_THROW(requests.complete(request->id, as_bytes(files[0]).first(999), nullptr),
               std::invalid_argument);
  complete(requests, files, *request);
  EXPECT_EQ(copy_of(requests, 0, 0, 1'000), files[0]);
}

TEST(RangeRequestsTest, AllRequestsMayFail) {
  const std::vector<std::string> files = {noise(100'000, 10)};
  RangeRequests requests({20'000, 2'000, 100});
  std::atomic<unsigned> n{0};
  const Fetchers fetchers(&requests, &files, 3,
                          [&](const RangeRequest&) { return ++n % 3 == 0; });
  std::vector<std::thread> readers;
  std::atomic<int> n_wrong{0}, n_thrown{0};
  for (unsigned seed = 0; seed < 3; ++seed) {
    readers.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 500; ++i) {
        const std::size_t offset = random() % 95'000;
        requests.read_ahead(0, offset, random() % 5'000);
        try {
          n_wrong += copy_of(requests, 0, offset, 900) != files[0].substr(offset, 900);
        } catch (const Outage&) {
          ++n_thrown;
        }
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(n_wrong, 0);
  EXPECT_GT(n_thrown, 0);
}

TEST(RangeRequestsTest, StopEndsAllWaits) {
  RangeRequests requests;
  std::thread reader(
      [&] { EXPECT_THROW((void)copy_of(requests, 0, 0, 10), std::runtime_error); });
  std::thread fetcher([&] {
    while (requests.take(std::nullopt)) continue;  // and never answers
  });
  requests.stop();
  reader.join();
  fetcher.join();
  EXPECT_FALSE(take(requests));
}

TEST(RangeRequestsTest, AnInterruptEndsAWait) {
  RangeRequests requests;
  std::atomic<bool> is_interrupted{false};
  std::thread reader([&] {
    const InterruptScope scope([&] {
      if (is_interrupted) throw Outage();
    });
    EXPECT_THROW((void)copy_of(requests, 0, 0, 10), Outage);
  });
  is_interrupted = true;
  reader.join();
}

// The rest of the core on files in a store.

std::vector<std::string> payloads(std::size_t n, std::size_t n_bytes_max) {
  std::mt19937 random(11);
  std::vector<std::string> result;
  for (std::size_t i = 0; i < n; ++i) {
    result.push_back(noise(random() % n_bytes_max, static_cast<unsigned>(i)));
  }
  return result;
}

class StoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<FileTable> open(std::vector<std::string> files, RangeLimits limits,
                                  int n_fetchers = 2) {
    files_ = std::move(files);
    std::vector<FileIdentity> versions;
    for (const std::string& file : files_) versions.push_back({file.size(), 7});
    const auto requests = std::make_shared<RangeRequests>(limits, versions);
    std::vector<std::string> names(files_.size(), "https://store/file");
    auto table = std::make_shared<FileTable>(
        names, std::vector<Io>{Io::kRanges}, std::vector<std::string>(),
        std::numeric_limits<std::uint64_t>::max(), requests);
    fetchers_.emplace(requests.get(), &files_, n_fetchers);
    requests_ = requests;  // outlives the fetchers
    return table;
  }

  std::vector<std::string> files_;
  std::shared_ptr<RangeRequests> requests_;
  std::optional<Fetchers> fetchers_;

  void TearDown() override { fetchers_.reset(); }
};

TEST_F(StoreTest, AnotherVersionThanTheIndexedOneIsRefused) {
  const auto table = open({"content"}, {});
  EXPECT_EQ(table->open(0)->size(), 7U);
  table->expect({FileIdentity{7, 8}});
  EXPECT_THROW((void)table->open(0), Error);
}

TEST_F(StoreTest, ScansFindAllFrames) {
  for (const std::size_t n_bytes_max : {300U, 100'000U}) {
    const std::string file =
        file_of(payloads(n_bytes_max > 1'000 ? 40 : 3'000, n_bytes_max));
    const auto table = open({file}, {200'000, 10'000, 100});
    ScanProgress progress;
    const ScanResult found = scan(*table->open(0), 2, &progress);
    EXPECT_FALSE(found.fault);
    EXPECT_EQ(found.offsets.back(), file.size());
    const testing::TemporaryDirectory directory;
    const FileView local(directory.write("data", file), Io::kMmap);
    EXPECT_EQ(found.offsets, scan(local, 1, &progress).offsets);
    fetchers_.reset();
  }
}

TEST_F(StoreTest, ACancelledScanEnds) {
  const auto requests = std::make_shared<RangeRequests>(
      RangeLimits(), std::vector<FileIdentity>{{1'000'000, 7}});  // nothing is fetched
  const FileView view("https://store/file", requests, 0);
  ScanProgress progress;
  std::thread canceller([&] { progress.cancelled = true; });
  EXPECT_THROW((void)scan(view, 1, &progress), ScanCancelled);
  canceller.join();
}

TEST_F(StoreTest, ReadersReadShuffledRecords) {
  const std::vector<std::string> records = payloads(500, 2'000);
  const auto table = open({file_of(records), file_of(records)}, {50'000, 10'000, 100});
  std::vector<Place> places;
  for (std::size_t file = 0; file < 2; ++file) {
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
      places.push_back({file, i, {offset, records[i].size()}});
      offset = places.back().frame.end();
    }
  }
  std::shuffle(places.begin(), places.end(), std::mt19937(1));
  const FrameRuns frames = testing::frames_of(places);
  RecordReader reader(table);
  reader.start(frames);
  for (const Place& place : places) {
    Bytes payload;
    ASSERT_FALSE(reader.next(&payload));
    ASSERT_EQ(as_text(payload), records[place.record]);
  }
}

TEST_F(StoreTest, AStepIsRequestedBeforeTheStepsAfterIt) {
  constexpr std::uint64_t kRecords = 5'000, kBatchSize = 64, kFrameBytes = 1'016;
  const std::string file =
      file_of(std::vector<std::string>(kRecords, std::string(1'000, 'x')));
  ScanProgress progress;
  std::vector<Index> indexes;
  indexes.push_back(Index::build(*open({file}, {})->open(0), 1, &progress));
  // Each record is a range.
  const auto table = open({file}, {.range_bytes = kFrameBytes}, 0);
  const IndexedClaims claims(table, std::make_shared<const Catalog>(std::move(indexes)),
                             std::make_shared<const ShuffledOrder>(kRecords, 1),
                             {.n_positions = kRecords, .batch_size = kBatchSize}, 0);
  Claim claim;
  claim.step = 3;
  claims.locate(&claim);
  for (const FrameRun& run : claim.frames.runs) {
    for (std::uint64_t begin = run.begin; begin < run.end; begin += kFrameBytes) {
      EXPECT_EQ(take(*requests_).value_or(RangeRequest()).begin, begin);
    }
  }
  EXPECT_TRUE(take(*requests_));  // of the next step
}

TEST_F(StoreTest, AWalkToTheEndFindsTheOffsets) {
  const std::vector<std::string> records = payloads(700, 500);
  const std::string file = file_of(records);
  std::string damaged = file;
  damaged[file_of({records[0], records[1]}).size() + 3] ^= 1;  // a length
  const auto table = open({file, damaged, "", file}, {50'000, 10'000, 100});
  WalkedClaims claims(table, {.batch_size = 64}, Recovery::kResync);
  Claim claim;
  std::uint64_t n_records = 0;
  RecordReader reader(table);
  while (testing::claim_step(&claims, &claim)) {
    claims.locate(&claim);
    reader.start(claim.frames);
    for (const std::uint64_t length : claim.frames.lengths) {
      Bytes payload;
      ASSERT_FALSE(reader.next(&payload));
      ASSERT_EQ(length, payload.size());
      ++n_records;
    }
  }
  EXPECT_EQ(n_records, 3 * records.size() - 1);
  const std::vector<FileOffsets> found = claims.take_offsets();
  ASSERT_EQ(found.size(), 3U);  // not of the damaged file
  const std::size_t numbers[] = {0, 2, 3};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found[i].file, numbers[i]);
    EXPECT_EQ(found[i].offsets.size(), (i == 1 ? 0 : records.size()) + 1);
    EXPECT_EQ(found[i].offsets.back(), files_[numbers[i]].size());
  }
  EXPECT_TRUE(claims.take_offsets().empty());
}

}  // namespace
}  // namespace fastrec
