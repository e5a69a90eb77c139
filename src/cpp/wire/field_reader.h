// FieldReader: the bytes of a protobuf message -> its fields, in order.
//
// Accepts what protobuf's parsers accept: unknown fields of any type, tags and lengths
// in non-minimal encodings, and groups, which it skips without recursion. Wire types 6
// and 7, field number 0, lengths past the end and unbalanced groups are faults.
//
// Unlike protobuf, it accepts tags and lengths of 6 to 10 bytes if the value is in
// range.
//
// Source: https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/error.h"
#include "wire/varint.h"

namespace fastrec {

enum class WireType : std::uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kLengthDelimited = 2,
  kGroupBegin = 3,
  kGroupEnd = 4,
  kFixed32 = 5,
};

struct Field {
  std::uint32_t number = 0;
  WireType type = WireType::kVarint;
  Bytes content;  // a message or string without its length, a varint, or 4 or 8
                  // bytes; unspecified for a group
};

class FieldReader {
 public:
  explicit FieldReader(Bytes message) noexcept
      : next_(message.data()), end_(message.data() + message.size()) {}

  // Reads the next field into `*field`. Returns false at the end and after a fault.
  bool next(Field* field) noexcept {
    // Nearly all fields of an Example are length-delimited, with a tag and a length of
    // one byte each.
    if (end_ - next_ >= 2 && (next_[0] & 0x87) == 2 && next_[0] > 7 &&
        next_[1] < 0x80 && next_[1] <= end_ - next_ - 2) [[likely]] {
      *field = {static_cast<std::uint32_t>(next_[0] >> 3),
                WireType::kLengthDelimited,
                {next_ + 2, next_[1]}};
      next_ += 2 + next_[1];
      return true;
    }
    return next_ != end_ && next_general(field);
  }

  // Reads the next length-delimited field `number`, at most 15, into `*content`, and
  // skips other fields. Returns false at the end and after a fault.
  bool next_message(std::uint32_t number, Bytes* content) noexcept {
    if (end_ - next_ >= 2 && next_[0] == (number << 3 | 2) && next_[1] < 0x80 &&
        next_[1] <= end_ - next_ - 2) [[likely]] {
      *content = {next_ + 2, next_[1]};
      next_ += 2 + next_[1];
      return true;
    }
    Field field;
    while (next(&field)) {
      if (field.number != number || field.type != WireType::kLengthDelimited) continue;
      *content = field.content;
      return true;
    }
    return false;
  }

  // The fault that ended the iteration, if any, without an offset.
  Fault fault() const noexcept {
    if (errc_ == Errc::kOk) [[likely]]
      return {};
    return {.code = errc_, .found = found_, .expected = expected_};
  }
  // The same, with its offset from `begin`.
  Fault fault_from(const std::uint8_t* begin) const noexcept {
    Fault from_begin = fault();
    from_begin.offset = static_cast<std::uint64_t>(next_ - begin);
    return from_begin;
  }
  const std::uint8_t* position() const noexcept { return next_; }

 private:
  bool fail(Errc code, std::uint64_t found = 0, std::uint64_t expected = 0) noexcept {
    errc_ = code;
    found_ = found;
    expected_ = expected;
    return false;
  }
  bool next_general(Field* field) noexcept;
  bool read_tag(std::uint32_t* number, WireType* type) noexcept;
  bool read_content(WireType type, Bytes* content) noexcept;
  bool skip_group(std::uint32_t number) noexcept;

  const std::uint8_t* next_;
  const std::uint8_t* end_;
  Errc errc_ = Errc::kOk;
  std::uint64_t found_, expected_;  // set by fail()
};

inline bool FieldReader::read_tag(std::uint32_t* number, WireType* type) noexcept {
  std::uint64_t tag;
  Errc errc;
  const std::uint8_t* after = read_varint(next_, end_, &tag, &errc);
  if (after == nullptr) return fail(errc);
  const std::uint64_t type_bits = tag & 7;
  if (tag > 0xffffffff || tag < 8) return fail(Errc::kFieldNumber);
  if (type_bits > 5) return fail(Errc::kWireType, type_bits);
  next_ = after;
  *number = static_cast<std::uint32_t>(tag >> 3);
  *type = static_cast<WireType>(type_bits);
  return true;
}

inline bool FieldReader::read_content(WireType type, Bytes* content) noexcept {
  const auto left = static_cast<std::uint64_t>(end_ - next_);
  std::uint64_t value;
  Errc errc;
  switch (type) {
    case WireType::kLengthDelimited: {
      const std::uint8_t* after = read_varint(next_, end_, &value, &errc);
      if (after == nullptr) return fail(errc);
      const auto left_after = static_cast<std::uint64_t>(end_ - after);
      if (value > left_after) return fail(Errc::kLengthPastEnd, value, left_after);
      *content = {after, static_cast<std::size_t>(value)};
      break;
    }
    case WireType::kVarint: {
      const std::uint8_t* after = read_varint(next_, end_, &value, &errc);
      if (after == nullptr) return fail(errc);
      *content = {next_, static_cast<std::size_t>(after - next_)};
      break;
    }
    case WireType::kFixed32:
      if (left < 4) return fail(Errc::kFixedCut);
      *content = {next_, 4};
      break;
    case WireType::kFixed64:
      if (left < 8) return fail(Errc::kFixedCut);
      *content = {next_, 8};
      break;
    case WireType::kGroupBegin:
    case WireType::kGroupEnd:
      *content = {next_, 0};
      break;
  }
  next_ = content->data() + content->size();
  return true;
}

inline bool FieldReader::next_general(Field* field) noexcept {
  if (!read_tag(&field->number, &field->type)) return false;
  if (field->type == WireType::kGroupEnd) return fail(Errc::kGroup);
  if (!read_content(field->type, &field->content)) return false;
  if (field->type == WireType::kGroupBegin) return skip_group(field->number);
  return true;
}

// Out of line, because groups are rare.
[[gnu::noinline]] inline bool FieldReader::skip_group(std::uint32_t number) noexcept {
  constexpr int kMaxDepth = 100;  // as in protobuf
  std::uint32_t open[kMaxDepth];
  int depth = 0;
  open[depth++] = number;
  while (depth > 0) {
    if (next_ == end_) return fail(Errc::kGroup);
    WireType type;
    Bytes content;
    if (!read_tag(&number, &type) || !read_content(type, &content)) return false;
    if (type == WireType::kGroupBegin) {
      if (depth == kMaxDepth) return fail(Errc::kGroup);
      open[depth++] = number;
    } else if (type == WireType::kGroupEnd && open[--depth] != number) {
      return fail(Errc::kGroup);
    }
  }
  return true;
}

}  // namespace fastrec
