// Writes the seeds of each fuzz target: fuzz_seeds DIRECTORY.
//
// The seeds are small valid inputs, one for every form that a target reads. They come
// from fastrec's encoder and index if those write the form; the others are built here.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "encode/encode.h"
#include "memory_file.h"
#include "record/index.h"
#include "record/index_file.h"
#include "records.h"
#include "runs.h"

namespace fastrec::testing {
namespace {

using namespace std::string_literals;

class Seeds {
 public:
  explicit Seeds(std::filesystem::path directory) : directory_(std::move(directory)) {}

  void add(const std::string& target, std::string_view content) {
    const std::filesystem::path folder = directory_ / target;
    std::filesystem::create_directories(folder);
    const std::string name = "seed" + std::to_string(n_seeds_++);
    std::ofstream(folder / name, std::ios::binary) << content;
  }

 private:
  std::filesystem::path directory_;
  int n_seeds_ = 0;
};

// Records with the features of example_fuzz.cpp, as fastrec writes them.
std::string example(std::int64_t i) {
  const std::vector<std::int64_t> ints = {i, -1, 300}, splits = {0, 2}, two = {5, 6};
  const std::vector<float> floats = {1.5f, static_cast<float>(i)};
  const std::string text(static_cast<std::size_t>(i) * 9, 's');
  const std::vector<Bytes> strings = {as_bytes(text), as_bytes("b")};
  const auto ints_of = [](std::string_view key, std::span<const std::int64_t> values) {
    return FeatureValues{as_bytes(key), FeatureKind::kInt64, {}, {}, values};
  };
  const auto floats_of = [](std::string_view key, std::span<const float> values) {
    return FeatureValues{as_bytes(key), FeatureKind::kFloat, {}, values, {}};
  };
  const auto strings_of = [](std::string_view key, std::span<const Bytes> values) {
    return FeatureValues{as_bytes(key), FeatureKind::kBytes, values, {}, {}};
  };
  const std::vector<Bytes> raw = {as_bytes("raw4")};
  const std::span one = std::span(ints).first(1);
  const std::vector<FeatureValues> features = {
      ints_of("i", ints),
      floats_of("f", floats),
      strings_of("b", strings),
      ints_of("I", one),
      strings_of("B", std::span(strings).first(1)),
      strings_of("r", raw),
      ints_of("v", two),
      ints_of("p", splits),
      ints_of("xint64", one),
      floats_of("xfloat", std::span(floats).first(1)),
      ints_of("a_key_of_more_than_twenty_two_bytesint64", one),
      floats_of("a_key_of_more_than_twenty_two_bytesfloat", std::span(floats).first(1)),
  };
  std::vector<std::uint8_t> record;
  ExampleEncoder encoder;
  record.resize(encoder.measure(features));
  encoder.store(record.data());
  return std::string(as_text(record));
}

std::string float_feature(const std::vector<std::uint32_t>& bits) {
  std::string packed;
  for (const std::uint32_t value : bits) append_le(&packed, value);
  return field_of(2, field_of(1, packed));
}

// A record with the features and lists of sequence_fuzz.cpp.
std::string sequence(std::int64_t i) {
  const auto list = [](const std::vector<std::string>& steps) {
    std::string features;
    for (const std::string& step : steps) features += field_of(1, step);
    return features;
  };
  const std::string ints = list({int64_feature({i}), int64_feature({300})});
  const std::string floats = list({float_feature({1, 2}), float_feature({3, 4})});
  const std::string strings = list({bytes_feature({"one"}), bytes_feature({""})});
  std::string context =
      entry_of("i", int64_feature({i, -1})) + entry_of("f", float_feature({0}));
  std::string lists;
  for (const char* key : {"i", "I"}) lists += entry_of(key, ints);
  for (const char* key : {"f", "F"}) lists += entry_of(key, floats);
  for (const char* key : {"b", "B"}) lists += entry_of(key, strings);
  return field_of(1, context) + field_of(2, lists);
}

// Tensors of every dtype, as the memory of 12 values and as a list of the first ones.
std::vector<std::string> tensors() {
  constexpr struct {
    std::uint64_t dtype;
    std::size_t value_bytes;
    unsigned list;
  } kTypes[] = {{1, 4, 5},    {2, 8, 6},   {3, 4, 7},   {4, 1, 7},
                {5, 2, 7},    {6, 1, 7},   {7, 0, 8},   {8, 8, 9},
                {9, 8, 10},   {10, 1, 11}, {14, 2, 13}, {17, 2, 7},
                {18, 16, 12}, {19, 2, 13}, {22, 4, 16}, {23, 8, 17}};
  std::vector<std::string> found;
  for (const auto& type : kTypes) {
    std::string shape;
    for (const std::uint64_t size : {3u, 4u}) {
      shape += field_of(2, varint_of(1 << 3) + varint_of(size));
    }
    const std::string header =
        varint_of(1 << 3) + varint_of(type.dtype) + field_of(2, shape);
    found.push_back(header + field_of(4, std::string(12 * type.value_bytes, '\1')));
    found.push_back(header + field_of(type.list, std::string(16, '\1')));
  }
  return found;
}

std::vector<std::string> files() {
  const std::string nested = file_of({"inner", file_of({"innermost", ""})});
  const std::string whole = file_of({"one", "", nested, std::string(100, 'x')});
  std::string damaged = whole;
  damaged[kHeaderBytes] ^= 1;
  std::string unframed = whole;
  unframed[0] ^= 1;
  return {"",
          whole,
          damaged,
          unframed,
          whole.substr(0, whole.size() - 7),
          whole + header_of(~std::uint64_t{0}),
          whole + std::string(40, '\0') + whole,
          "\x1f\x8b\x08 gzip",
          "text\n"};
}

std::string random_bytes(KeyStream* random, std::size_t n) {
  std::string bytes;
  while (bytes.size() < n) bytes += static_cast<char>(random->next());
  return bytes;
}

void write_all(Seeds* seeds) {
  for (char choice = 0; choice < 3; ++choice) {
    seeds->add("example_fuzz", choice + run_of({example(1), example(2), example(3)}));
    seeds->add("example_fuzz", choice + run_of({example(0)}));
    seeds->add("sequence_fuzz", choice + run_of({sequence(1), sequence(2)}));
    seeds->add("sequence_fuzz", choice + run_of({example(1)}));
  }
  for (const std::string& tensor : tensors()) {
    for (char choice = 0; choice < 4; ++choice) {
      seeds->add("tensor_fuzz", choice + tensor);
    }
  }
  for (const std::string& file : files()) {
    seeds->add("framing_fuzz", file);
    for (char mode = 0; mode < 12; ++mode) {
      seeds->add("recovery_fuzz", mode + file);
      seeds->add("claims_fuzz", mode + "\2\4"s + run_of({file, file}));
    }
    for (const char mode : {'\0', '\1', '\x80', '\x81'}) {
      seeds->add("stream_fuzz", mode + file);
    }
    for (const char* choices : {"\2", "\4", "\6"}) {
      seeds->add("index_fuzz", run_of({file, "frecidx3", choices}));
    }
  }

  MemoryFile data, saved;
  const std::string content = file_of({"one", "two", std::string(50, 'x')});
  data.write(as_bytes(content));
  ScanProgress progress;
  const Index built = Index::build(FileView(data.path(), Io::kPread), 1, &progress);
  const NamedIndex named[] = {{"data", &built}};
  save_index_file(saved.path(), named);
  std::ifstream stream(saved.path(), std::ios::binary);
  const std::string index((std::istreambuf_iterator<char>(stream)), {});
  for (const char* choices : {"", "\1", "\4", "\5"}) {
    seeds->add("index_fuzz", run_of({content, index, choices}));
  }

  KeyStream random(0);
  for (int i = 0; i < 200; ++i) {
    const std::string schema = random_bytes(&random, 8 + random.below(60));
    seeds->add("schema_fuzz",
               (i % 2 == 0 ? "\0"s : "\1"s) +
                   run_of({schema, "\1" + random_bytes(&random, random.below(100)),
                           "\1" + random_bytes(&random, random.below(100))}));
  }
  for (int i = 0; i < 40; ++i) {
    const auto choice = static_cast<char>(i);
    for (const char* target : {"plan_fuzz", "encode_fuzz"}) {
      seeds->add(target, choice + random_bytes(&random, 20 + random.below(80)));
    }
  }
  std::string varints;
  for (int bits = 0; bits < 64; ++bits) varints += varint_of(std::uint64_t{1} << bits);
  seeds->add("varint_fuzz", "\x40\0\3"s + varints);
  seeds->add("crc32c_fuzz", "initial cutsN"s + varints);
}

}  // namespace
}  // namespace fastrec::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fuzz_seeds DIRECTORY\n", stderr);
    return 2;
  }
  fastrec::testing::Seeds seeds(argv[1]);
  fastrec::testing::write_all(&seeds);
  return 0;
}
