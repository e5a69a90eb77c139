// Arrow: columns in blocks -> the structs of the Arrow C Data Interface.
//
//   ArrowField   -> ArrowSchema        names and types
//   ArrowValues  -> ArrowArray         lengths and buffers
//   ArrowBatches -> ArrowArrayStream   batch after batch
//
// The consumer of a struct calls its `release` once, at any time and on any thread.
//
// Invariants
//   * No byte of a buffer is copied: each array shares the blocks of its buffers.
//   * Each child of an array or schema owns its buffers, so a consumer may move it out
//     of its parent and release it later.
//   * Releasing only decrements references and frees memory.
//   * No exception leaves a callback: a stream turns it into an errno and a message.
//
// The caller chooses the formats, and provides matching buffers.
//
// Source: Apache Arrow, "The Arrow C data interface" and "The Arrow C stream
// interface", https://arrow.apache.org/docs/format/CDataInterface.html.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "batch/column.h"

// The specification asks each implementation to copy these definitions with their
// guards, since a program may include several copies.
extern "C" {

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);  // null after a release or a move
  void* private_data;
};

struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

#endif  // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};

#endif  // ARROW_C_STREAM_INTERFACE

}  // extern "C"

namespace fastrec {

// A named type. Neither string may contain a zero byte.
struct ArrowField {
  std::string name;
  std::string format;  // of the specification: "l", "+L", "+w:28", ...
  bool is_nullable = false;
  std::vector<ArrowField> children;
};

// The contents of an array.
struct ArrowValues {
  std::int64_t length = 0;
  std::int64_t null_count = 0;
  std::vector<Array> buffers;  // null data: a validity bitmap without nulls
  std::vector<ArrowValues> children;
};

// Fills `*values` with the next batch and returns true; returns false at the end. May
// throw any std::exception; an ArrowStreamError chooses the errno.
using ArrowBatches = std::function<bool(ArrowValues*)>;

class ArrowStreamError : public std::runtime_error {
 public:
  ArrowStreamError(int errno_value_, const std::string& text)
      : std::runtime_error(text), errno_value(errno_value_) {}

  int errno_value;
};

// Each overwrites `*out`, which the caller then releases. Throws std::bad_alloc and
// leaves `*out` unchanged.
void export_field(const ArrowField& field, ArrowSchema* out);
void export_values(ArrowValues values, ArrowArray* out);

// The stream owns `batches`, all of type `field`, until it is released. It does not call
// them again after an error or the end.
void export_batches(ArrowField field, ArrowBatches batches, ArrowArrayStream* out);

}  // namespace fastrec
