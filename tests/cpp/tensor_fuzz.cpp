// libFuzzer entry: a byte, and any bytes that are read as a tensorflow.TensorProto.
//
// Goal: a tensor that is accepted has the size of its shape and dtype, and the same
// values in every encoding: as raw memory, as a list of all values, and inside a record
// read both ways. Method: mutations keep the lengths of the messages correct (mutate.h);
// each accepted tensor is written in the other encodings. The first byte selects what
// the tensor is compared with.
//
// Tensors that repeat a value for many megabytes are skipped, to save time.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "both_ways.h"
#include "check_columns.h"
#include "decode/tensor.h"
#include "mutate.h"
#include "records.h"

namespace fastrec::testing {
namespace {

struct Form {
  std::uint32_t dtype;
  DType column;
  std::size_t item_bytes;
  unsigned list;               // its field
  std::size_t n_varint_bytes;  // of a value that is stored as a varint, or 0
  bool is_signed = false;
};

// Source: types.proto and tensor.proto, as in decode/tensor.cpp.
constexpr Form kForms[] = {
    {1, DType::kFloat32, 4, 5, 0},      {2, DType::kFloat64, 8, 6, 0},
    {3, DType::kInt32, 4, 7, 4, true},  {4, DType::kUint8, 1, 7, 1},
    {5, DType::kInt16, 2, 7, 2, true},  {6, DType::kInt8, 1, 7, 1, true},
    {7, DType::kBytes, 0, 8, 0},        {8, DType::kOpaque, 8, 9, 0},
    {9, DType::kInt64, 8, 10, 8, true}, {10, DType::kBool, 1, 11, 1},
    {14, DType::kBfloat16, 2, 13, 2},   {17, DType::kUint16, 2, 7, 2},
    {18, DType::kOpaque, 16, 12, 0},    {19, DType::kFloat16, 2, 13, 2},
    {22, DType::kUint32, 4, 16, 4},     {23, DType::kUint64, 8, 17, 8},
};

const Form& form_of(std::uint32_t dtype) {
  const auto* found = std::find_if(std::begin(kForms), std::end(kForms),
                                   [&](const Form& f) { return f.dtype == dtype; });
  if (found == std::end(kForms)) std::abort();
  return *found;
}

// Whether a shape in `message` has enough values to make repeating one slow.
bool is_slow(Bytes message) {
  FieldReader fields(message);
  Bytes shape;
  double n = 1;
  while (fields.next_message(2, &shape)) {
    FieldReader dims(shape);
    Bytes dim;
    while (dims.next_message(2, &dim)) {
      FieldReader parts(dim);
      Field part;
      std::uint64_t size = 0;
      while (parts.next(&part)) {
        if (part.number != 1 || part.type != WireType::kVarint) continue;
        Errc errc;
        read_varint(part.content.data(), part.content.data() + part.content.size(),
                    &size, &errc);
      }
      n *= static_cast<double>(size);
    }
  }
  return n > 1024 && n <= 2.0 * TensorReader::kMaxRepeatedBytes;
}

std::string header_of(const TensorReader& tensor) {
  std::string shape;
  for (const std::int64_t size : tensor.shape()) {
    shape +=
        field_of(2, varint_of(1 << 3) + varint_of(static_cast<std::uint64_t>(size)));
  }
  return varint_of(1 << 3) + varint_of(tensor.dtype()) + field_of(2, shape);
}

// Writes the list of all values. False if there is no such list: tensor_content may
// hold
// bools that are neither 0 nor 1.
bool list_of(const TensorReader& tensor, const Form& form, std::string* message) {
  *message = header_of(tensor);
  for (const Bytes string : tensor.strings()) {
    *message += field_of(form.list, as_text(string));
  }
  const Bytes memory = tensor.memory();
  if (form.n_varint_bytes == 0) {
    if (!memory.empty()) *message += field_of(form.list, as_text(memory));
    return true;
  }
  std::string values;
  for (std::size_t i = 0; i < memory.size(); i += form.item_bytes) {
    std::uint8_t bytes[8] = {};
    const std::uint8_t* value = memory.data() + i;
    const bool is_negative = form.is_signed && value[form.item_bytes - 1] >= 0x80;
    if (is_negative) std::memset(bytes, 0xff, sizeof bytes);
    std::memcpy(bytes, value, form.item_bytes);
    if (form.column == DType::kBool && *value > 1) return false;
    values += varint_of(load_le<std::uint64_t>(bytes));
  }
  *message += field_of(form.list, values);
  return true;
}

void expect_same(const TensorReader& tensor, const std::string& message) {
  TensorReader other;
  if (other.read(as_bytes(message))) std::abort();
  const bool is_same =
      other.dtype() == tensor.dtype() && other.shape() == tensor.shape() &&
      std::ranges::equal(other.memory(), tensor.memory()) &&
      std::ranges::equal(other.strings(), tensor.strings(), std::ranges::equal);
  if (!is_same) std::abort();
}

void check_forms(const TensorReader& tensor, std::uint64_t n_values) {
  const Form& form = form_of(tensor.dtype());
  std::string message;
  if (list_of(tensor, form, &message)) expect_same(tensor, message);
  if (form.column == DType::kBytes) {
    if (tensor.strings().size() != n_values) std::abort();
    return;
  }
  if (tensor.memory().size() != n_values * form.item_bytes) std::abort();
  if (n_values == 0) return;
  expect_same(tensor, header_of(tensor) + field_of(4, as_text(tensor.memory())));
}

// Checks that a column of exactly this dtype and shape reads the tensor.
void check_column(const TensorReader& tensor, std::uint64_t n_values, Bytes record) {
  const Form& form = form_of(tensor.dtype());
  ColumnSpec spec = column_of("t", FeatureKind::kBytes, Layout::kTensor, form.column,
                              form.item_bytes);
  spec.n_values = n_values;
  spec.tensor_dtype = tensor.dtype();
  spec.tensor_shape = tensor.shape();
  auto schema = std::make_shared<Schema>();
  schema->columns.push_back(spec);
  ExampleDecoder decoder(schema);
  BatchBuilder builder(schema, std::make_shared<BlockPool>(0));
  builder.begin(1);
  if (decoder.decode(BytesWithSlack(record), 0, &builder)) std::abort();
  const Batch batch = builder.finish(1);
  if (batch.columns[0].n_values != n_values) std::abort();
  const Bytes memory = tensor.memory();
  const std::uint8_t* values = batch.columns[0].values.data;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const unsigned expected = form.column == DType::kBool ? memory[i] != 0 : memory[i];
    if (values[i] != expected) std::abort();
  }
}

std::shared_ptr<const Schema> any_tensor() {
  auto schema = std::make_shared<Schema>();
  schema->columns = {
      column_of("t", FeatureKind::kBytes, Layout::kTensor, DType::kBytes, 0)};
  return schema;
}

}  // namespace
}  // namespace fastrec::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fastrec;
  if (size == 0) return 0;
  const Bytes message(data + 1, size - 1);
  if (testing::is_slow(message)) return 0;
  enum { kModes, kColumns, kColumn, kForms };
  const int choice = data[0] % 4;
  const std::string record =
      choice == kForms
          ? std::string()
          : testing::example_of(testing::entry_of(
                "t", testing::bytes_feature({std::string(as_text(message))})));
  if (choice == kModes) {
    static testing::BothWays both_ways(testing::any_tensor());
    if (!both_ways.is_same({as_bytes(record), as_bytes(record)})) std::abort();
    return 0;
  }
  TensorReader tensor;
  const Fault fault = tensor.read(message);
  if (choice == kColumns) {
    static testing::CheckColumns columns(testing::any_tensor());
    const bool is_row = data[0] / 4 % 2 != 0;
    if (columns.check(as_bytes(record), is_row).code != fault.code) std::abort();
    return 0;
  }
  if (fault) return 0;
  std::uint64_t n_values = 1;
  for (const std::int64_t extent : tensor.shape()) {
    n_values *= static_cast<std::uint64_t>(extent);
  }
  if (choice == kForms) {
    testing::check_forms(tensor, n_values);
  } else {
    testing::check_column(tensor, n_values, as_bytes(record));
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace fastrec;
  testing::Mutator mutator(seed);
  const std::string mutated = mutator.choice_and(
      {data, size}, [&](Bytes message) { return mutator.message(as_text(message)); });
  return testing::replace_input(mutated, data, max_size);
}
