// Tensor: a serialized tensorflow.TensorProto -> its dtype, shape and values.
//
//   TensorProto { dtype = 1,
//                 tensor_shape = 2 { dim = 2 { size = 1 }, unknown_rank = 3 },
//                 tensor_content = 4 }
//
// The values are the raw memory in tensor_content, or a list in the field of their
// dtype. TensorFlow shortens lists: the last value of a list that is shorter than the
// shape is repeated, and an empty list means zeros.
//
// Source: tensorflow/core/framework/{tensor,tensor_shape,types}.proto.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace fastrec {

// Reads tensors; the accessors return the parts of the last one. Its message must
// outlive them.
class TensorReader {
 public:
  static constexpr std::uint32_t kString = 7;  // DT_STRING

  // The limit of memory for repeated values, since a number in the message decides how
  // much is allocated.
  static constexpr std::uint64_t kMaxRepeatedBytes = std::uint64_t{64} << 20;

  // Faults have no offset.
  Fault read(Bytes message);

  // As numbered in types.proto.
  std::uint32_t dtype() const noexcept { return dtype_; }
  const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  Bytes memory() const noexcept { return memory_; }  // empty for strings
  const std::vector<Bytes>& strings() const noexcept { return strings_; }

 private:
  struct Kind;
  static const Kind* find_kind(std::uint32_t dtype) noexcept;

  Fault read_shape(Bytes message);
  Fault read_values(Bytes message, const Kind& kind);
  Fault append_value(Bytes content, const Kind& kind);
  Fault repeat_last(const Kind& kind, std::uint64_t n_values);

  std::uint32_t dtype_ = 0;
  std::vector<std::int64_t> shape_;
  Bytes content_, memory_;
  std::vector<std::uint8_t> values_;
  std::vector<Bytes> strings_;
};

}  // namespace fastrec
