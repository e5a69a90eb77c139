// Mutate: a structured input -> a similar input.
//
// Changing random bytes almost always breaks a length or a checksum, so that only its
// check is tested. These mutators parse an input, change, add or remove parts, and
// serialize it with correct lengths and checksums, or sometimes a wrong one. libFuzzer
// mutates unstructured bytes, guided by the comparisons that it traces.
//
// Source: https://llvm.org/docs/LibFuzzer.html ("structure-aware fuzzing").
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/framing.h"
#include "records.h"
#include "runs.h"
#include "wire/field_reader.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                        std::size_t max_size);

namespace fastrec::testing {

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }

  // Unstructured bytes; may add a few.
  std::string bytes(std::string bytes) {
    const std::size_t size = bytes.size();
    bytes.resize(size + 1 + below(24));
    auto* data = reinterpret_cast<std::uint8_t*>(bytes.data());
    bytes.resize(LLVMFuzzerMutate(data, size, bytes.size()));
    return bytes;
  }

  // A protobuf message; corrects the lengths around a change.
  std::string message(std::string_view bytes, int depth = 0) {
    constexpr int kMaxDepth = 8;
    std::vector<Part> parts;
    if (depth == kMaxDepth || one_in(16) || !take_apart(bytes, &parts)) {
      return this->bytes(std::string(bytes));
    }
    mutate(&parts, depth);
    std::string mutated;
    for (const Part& part : parts) {
      mutated += varint(part.number << 3 | static_cast<unsigned>(part.type));
      if (part.type == WireType::kLengthDelimited)
        mutated += varint(part.content.size());
      mutated += part.content;
    }
    return mutated;
  }

  // A TFRecord file; corrects the checksums around a change.
  std::string file(std::string_view bytes) {
    std::vector<std::string> pieces = take_apart(bytes);
    mutate(&pieces);
    std::string mutated;
    for (const std::string& piece : pieces) mutated += piece;
    if (one_in(16)) mutated.resize(below(mutated.size() + 1));
    return mutated;
  }

  // A byte that selects an option, and an input after it, which `mutate` changes.
  template <typename F>
  std::string choice_and(Bytes input, F mutate) {
    if (input.empty()) return std::string(1, static_cast<char>(below(256)));
    const bool is_other = one_in(16);
    std::string mutated(1, static_cast<char>(is_other ? below(256) : input[0]));
    return mutated +=
           is_other ? std::string(as_text(input.subspan(1))) : mutate(input.subspan(1));
  }

  std::string choice_and_file(Bytes input) {
    return choice_and(input, [&](Bytes bytes) { return file(as_text(bytes)); });
  }

  std::string choice_and_messages(Bytes input) {
    return choice_and(input, [&](Bytes bytes) { return messages(bytes); });
  }

  // A run (runs.h) of protobuf messages.
  std::string messages(Bytes bytes) {
    return run(bytes,
               [&](const std::string& piece, std::size_t) { return message(piece); });
  }

  // A run (runs.h): changes a piece with `mutate_piece(piece, index)`, or the set of
  // pieces.
  template <typename F>
  std::string run(Bytes bytes, F mutate_piece) {
    std::vector<std::string> pieces;
    for (const Bytes piece : pieces_of(bytes)) pieces.emplace_back(as_text(piece));
    if (pieces.empty()) pieces.emplace_back();
    const std::size_t i = below(pieces.size());
    switch (below(12)) {
      case 0:
        pieces.insert(pieces.begin() + at(pieces.size() + 1), pieces[i]);
        break;
      case 1:
        pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      case 2:
        std::swap(pieces[i], pieces[below(pieces.size())]);
        break;
      default:
        pieces[i] = mutate_piece(pieces[i], i);
    }
    return run_of(pieces);
  }

 private:
  struct Part {
    std::uint32_t number = 0;
    WireType type = WireType::kVarint;
    std::string content;
  };

  std::ptrdiff_t at(std::size_t n) { return static_cast<std::ptrdiff_t>(below(n)); }

  std::uint64_t number() {
    const std::uint64_t bits = (std::uint64_t{random_()} << 32) ^ random_();
    const std::uint64_t around = (std::uint64_t{1} << below(64)) + below(3) - 1;
    return one_in(3) ? bits >> below(64) : one_in(2) ? around : below(20);
  }

  // Sometimes with more bytes than it needs.
  std::string varint(std::uint64_t value) {
    std::string bytes = varint_of(value);
    if (one_in(100)) {
      bytes.back() = static_cast<char>(bytes.back() | 0x80);
      bytes.append(below(4), '\x80');
      bytes += '\0';
    }
    return bytes;
  }

  // False if it is not a message, or has groups.
  static bool take_apart(std::string_view bytes, std::vector<Part>* parts) {
    FieldReader reader(as_bytes(bytes));
    Field field;
    while (reader.next(&field)) {
      if (field.type == WireType::kGroupBegin) return false;
      parts->push_back({field.number, field.type, std::string(as_text(field.content))});
    }
    return !reader.fault() && !parts->empty();
  }

  Part new_part() {
    constexpr WireType kTypes[] = {WireType::kVarint, WireType::kFixed32,
                                   WireType::kFixed64, WireType::kLengthDelimited};
    Part part{static_cast<std::uint32_t>(1 + below(one_in(2) ? 3 : 20)),
              kTypes[below(4)], ""};
    part.content = part.type == WireType::kVarint    ? varint_of(number())
                   : part.type == WireType::kFixed32 ? std::string(4, '\x3f')
                   : part.type == WireType::kFixed64 ? std::string(8, '\x3f')
                                                     : std::string(below(9), 'x');
    return part;
  }

  // Splits the message in a part in two, or a packed run into single values.
  std::vector<Part> pieces_of_part(const Part& part) {
    const std::string_view content = part.content;
    if (part.type != WireType::kLengthDelimited || content.empty()) return {part, part};
    std::vector<Part> pieces;
    if (one_in(2)) {
      // At a boundary of its fields, if it has any.
      FieldReader reader(as_bytes(content));
      Field field;
      for (std::size_t n = 1 + below(4); n > 0 && reader.next(&field);) --n;
      std::size_t cut =
          static_cast<std::size_t>(reader.position() - as_bytes(content).data());
      if (reader.fault() || one_in(8)) cut = below(content.size() + 1);
      pieces = {part, part};
      pieces[0].content = content.substr(0, cut);
      pieces[1].content = content.substr(cut);
      return pieces;
    }
    if (content.size() % 4 == 0 && one_in(2)) {
      for (std::size_t i = 0; i < content.size(); i += 4) {
        pieces.push_back(
            {part.number, WireType::kFixed32, std::string(content.substr(i, 4))});
      }
      return pieces;
    }
    std::size_t begin = 0;
    for (std::size_t i = 0; i < content.size(); ++i) {
      if ((static_cast<unsigned char>(content[i]) & 0x80) != 0) continue;
      pieces.push_back({part.number, WireType::kVarint,
                        std::string(content.substr(begin, i + 1 - begin))});
      begin = i + 1;
    }
    return pieces;
  }

  void mutate(std::vector<Part>* parts, int depth) {
    const std::size_t i = below(parts->size());
    const auto here = parts->begin() + static_cast<std::ptrdiff_t>(i);
    switch (below(24)) {
      case 0: {
        Part copy = *here;
        parts->insert(parts->begin() + at(parts->size() + 1), std::move(copy));
        return;
      }
      case 1:
        parts->erase(here);
        return;
      case 2:
        std::swap(*here, (*parts)[below(parts->size())]);
        return;
      case 3:
        here->number = static_cast<std::uint32_t>(1 + below(20));
        return;
      case 4: {
        const std::vector<Part> pieces = pieces_of_part(*here);
        parts->insert(parts->erase(here), pieces.begin(), pieces.end());
        return;
      }
      case 5:
        parts->insert(parts->begin() + at(parts->size() + 1), new_part());
        return;
      default:
        break;
    }
    if (here->type == WireType::kLengthDelimited) {
      here->content = message(here->content, depth + 1);
    } else if (here->type == WireType::kVarint) {
      here->content = varint(number());
    } else {
      const std::size_t size = here->content.size();
      here->content = bytes(std::move(here->content));
      here->content.resize(size);
    }
  }

  // Frames, valid or not, and the bytes after them.
  static std::vector<std::string> take_apart(std::string_view file) {
    std::vector<std::string> pieces;
    while (file.size() >= kFrameBytes) {
      const auto length = load_le<std::uint64_t>(as_bytes(file).data());
      if (length > file.size() - kFrameBytes) break;
      const auto size = static_cast<std::size_t>(length + kFrameBytes);
      pieces.emplace_back(file.substr(0, size));
      file.remove_prefix(size);
    }
    if (!file.empty() || pieces.empty()) pieces.emplace_back(file);
    return pieces;
  }

  void mutate(std::vector<std::string>* pieces) {
    const std::size_t i = below(pieces->size());
    std::string& piece = (*pieces)[i];
    const auto add = [&](std::string added) {
      pieces->insert(pieces->begin() + at(pieces->size() + 1), std::move(added));
    };
    switch (below(13)) {
      case 0:
        return add(std::string(piece));
      case 1:
        pieces->erase(pieces->begin() + static_cast<std::ptrdiff_t>(i));
        return;
      case 2:
        std::swap(piece, (*pieces)[below(pieces->size())]);
        return;
      case 3:
        return add(header_of(number()));
      case 4:  // put the file into a payload
        piece = frame_of(piece);
        return;
      case 5:  // take it out again
        if (piece.size() < kFrameBytes) break;
        piece = piece.substr(kHeaderBytes, piece.size() - kFrameBytes);
        return;
      case 6:
        return add(std::string(below(80), one_in(2) ? '\0' : 'x'));
      case 7:
        return add(frame_of(std::string(below(40), 'y')));
      case 8:
      case 9: {  // a byte of a header, or of a footer
        if (piece.size() < kFrameBytes) break;
        const std::size_t place =
            one_in(2) ? below(kHeaderBytes) : piece.size() - 1 - below(kFooterBytes);
        piece[place] = static_cast<char>(below(256));
        return;
      }
      case 10:
        break;
      default:
        if (piece.size() < kFrameBytes) break;
        piece = frame_of(bytes(piece.substr(kHeaderBytes, piece.size() - kFrameBytes)));
        return;
    }
    piece = bytes(std::move(piece));
  }

  std::minstd_rand random_;
};

// Replaces the input of a custom mutator, which has room for `max_size` bytes.
inline std::size_t replace_input(std::string_view mutated, std::uint8_t* data,
                                 std::size_t max_size) {
  const std::size_t size = std::min(mutated.size(), max_size);
  if (size != 0) std::memcpy(data, mutated.data(), size);
  return size;
}

}  // namespace fastrec::testing
