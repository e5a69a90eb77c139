// libFuzzer entry: a run (runs.h) of a TFRecord file and its index file, both of any
// bytes.
//
// Goal: an index is loaded only if it is complete and belongs to this file, and saving
// it reproduces it; every record read by it, mapped or by pread, is a complete frame
// between two entries of the index; a built index has the records of a scan. Method:
// the bits of a third piece select what is checked (Choices). An index may be sealed
// first: its kind, sizes, time and checksums become valid, so that its entries are used.

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory_file.h"
#include "mutate.h"
#include "record/index_file.h"
#include "record/reader.h"
#include "runs.h"

namespace {

using namespace fastrec;

enum Choices : std::uint8_t {
  kSealed = 1,  // seal the index
  kBuilt = 2,   // build an index instead of loading one
  kReadAt = 4,  // read records by pread instead of from a mapping
};

constexpr std::size_t kTablesBytes = 40 + 32 + 8;  // of one file with a short name
constexpr std::int64_t kTime = 1'700'000'000'000'000'000;
constexpr char kName[] = "data";
constexpr std::uint64_t kMaxChecked = 100'000;  // records

// The largest number of records whose block has at most `n_bytes`.
std::uint64_t most_records(std::uint64_t n_bytes, unsigned width) {
  std::uint64_t n = 0;
  while (*PackedOffsets::size_of(n + 1, width) <= n_bytes) ++n;
  return n;
}

// Turns `index` into the index of one file with `identity` and with valid checksums. Its
// block remains as it is.
void seal(const FileIdentity& identity, std::string* index) {
  const unsigned width = index->size() > 70 ? (*index)[70] & 63 : 0;
  const std::size_t least = kTablesBytes + *PackedOffsets::size_of(0, width);
  index->resize(std::max(index->size(), least));
  const std::uint64_t n = most_records(index->size() - kTablesBytes, width);
  index->resize(kTablesBytes + *PackedOffsets::size_of(n, width));
  auto* bytes = reinterpret_cast<std::uint8_t*>(index->data());
  std::fill_n(bytes + 8, kTablesBytes - 8, std::uint8_t{0});
  std::copy_n("frecidx3", 8, index->data());
  store_le(bytes + 8, std::uint64_t{1});
  store_le(bytes + 16, std::uint64_t{sizeof kName - 1});
  store_le(bytes + 24, std::uint64_t{index->size()});
  store_le(bytes + 40, identity.size);
  store_le(bytes + 48, static_cast<std::uint64_t>(identity.mtime_ns));
  store_le(bytes + 56, n);
  store_le(bytes + 64, crc32c(as_bytes(*index).subspan(kTablesBytes)));
  store_le(bytes + 68, std::uint16_t{sizeof kName - 1});
  bytes[70] = static_cast<std::uint8_t>(width);
  std::copy_n(kName, sizeof kName - 1, index->data() + 72);
  store_le(bytes + 32, crc32c({bytes + 40, kTablesBytes - 40}));
  store_le(bytes + 36, crc32c({bytes, 36}));
}

bool is_frame(Bytes file, std::uint64_t begin, std::uint64_t end) {
  if (begin > end || end > file.size() || end - begin < kFrameBytes) return false;
  const Bytes frame = file.subspan(begin, end - begin);
  std::uint64_t length;
  return !check_header(frame.data(), frame.size(), &length) &&
         length == frame.size() - kFrameBytes && !check_payload(frame);
}

// Reads all records of `index` from `file`, which is at `path`.
void check_records(const Index& index, Bytes file, const std::string& path, Io io) {
  const Catalog catalog({index});
  RecordReader reader(
      std::make_shared<FileTable>(std::vector<std::string>{path}, std::vector<Io>{io}));
  constexpr std::uint64_t kAtOnce = 16;
  for (std::uint64_t i = 0; i < catalog.size();) {
    const std::uint64_t batch_end = std::min(catalog.size(), i + kAtOnce);
    FrameRuns frames;
    for (std::uint64_t k = i; k < batch_end; ++k) frames.add(catalog.locate(k));
    reader.start(frames);
    for (; i < batch_end; ++i) {
      const std::uint64_t begin = index.offset(i), end = index.offset(i + 1);
      Bytes payload;
      if (reader.next(&payload)) {
        if (is_frame(file, begin, end)) std::abort();
        continue;
      }
      if (!is_frame(file, begin, end)) std::abort();
      const Bytes expected = file.subspan(begin + kHeaderBytes, payload.size());
      if (!std::ranges::equal(payload, expected)) std::abort();
    }
  }
}

void check_built(Bytes file, const std::string& path, Io io) {
  ScanProgress progress;
  const ScanResult scanned =
      scan_mapped(file, {0, file.size()}, 1, {~std::uint64_t{0}, 1}, &progress);
  std::optional<Index> built;
  try {
    built = Index::build(FileView(path, io), 1, &progress);
  } catch (const Error& error) {
    if (error.record != scanned.offsets.size() - 1) std::abort();
  }
  if (built.has_value() == bool(scanned.fault)) std::abort();
  if (!built) return;
  if (built->offsets() != scanned.offsets) std::abort();
  check_records(*built, file, path, io);
}

void check_index(std::string index, bool is_sealed, Bytes file, const std::string& path,
                 Io io) {
  static testing::MemoryFile index_file, saved_file;
  const FileIdentity identity{file.size(), kTime};
  if (is_sealed) seal(identity, &index);
  index_file.write(as_bytes(index));
  const std::optional<IndexFile> loaded = IndexFile::load(index_file.path());
  if (is_sealed && !loaded) std::abort();
  if (!loaded) return;
  for (std::size_t i = 0; i < loaded->size(); ++i) {
    const std::optional<Index> of_file = loaded->index(i);
    if (!of_file) continue;
    const NamedIndex named[] = {{loaded->name(i), &*of_file}};
    save_index_file(saved_file.path(), named);
    const std::optional<IndexFile> again = IndexFile::load(saved_file.path());
    if (!again || !again->find(loaded->name(i))) std::abort();
    const std::optional<Index> index_again = again->index(0);
    if (!index_again || index_again->identity() != of_file->identity()) std::abort();
    // The size of an unpacked index is not in proportion to that of its file.
    if (of_file->size() > kMaxChecked) continue;
    if (index_again->offsets() != of_file->offsets()) std::abort();
    if (of_file->identity() != identity || of_file->has_payload_crcs()) continue;
    check_records(*of_file, file, path, io);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static testing::MemoryFile data_file;
  const std::vector<Bytes> pieces = testing::pieces_of({data, size});
  if (pieces.size() < 2) return 0;
  data_file.write(pieces[0]);
  const unsigned choices =
      pieces.size() > 2 && !pieces[2].empty() ? pieces[2].front() : 0u;
  const Io io = (choices & kReadAt) != 0 ? Io::kPread : Io::kMmap;
  if ((choices & kBuilt) != 0) {
    check_built(pieces[0], data_file.path(), io);
  } else {
    check_index(std::string(as_text(pieces[1])), (choices & kSealed) != 0, pieces[0],
                data_file.path(), io);
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  testing::Mutator mutator(seed);
  const auto mutate = [&](const std::string& piece, std::size_t i) {
    return i == 0 ? mutator.file(piece) : mutator.bytes(piece);
  };
  return testing::replace_input(mutator.run({data, size}, mutate), data, max_size);
}
