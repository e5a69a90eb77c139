#include "batch/arrow.h"

#include <cerrno>
#include <new>
#include <utility>

namespace fastrec {
namespace {

// The children of an ArrowSchema or ArrowArray, and the array of pointers to them that
// the interface requires. A child that was moved away has a null `release`.
template <typename Struct>
class Children {
 public:
  explicit Children(std::size_t n) : structs_(n), pointers_(n) {
    for (std::size_t i = 0; i < n; ++i) pointers_[i] = &structs_[i];
  }
  ~Children() {
    for (Struct& child : structs_) {
      if (child.release != nullptr) child.release(&child);
    }
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  Struct* operator[](std::size_t i) { return &structs_[i]; }
  std::int64_t size() const { return static_cast<std::int64_t>(structs_.size()); }
  Struct** pointers() { return pointers_.data(); }

 private:
  std::vector<Struct> structs_;
  std::vector<Struct*> pointers_;
};

// The private data of a struct: everything it points to.
struct OwnedField {
  explicit OwnedField(const ArrowField& field)
      : name(field.name), format(field.format), children(field.children.size()) {}

  std::string name, format;
  Children<ArrowSchema> children;
};

struct OwnedValues {
  explicit OwnedValues(ArrowValues* values)
      : buffers(std::move(values->buffers)),
        pointers(buffers.size()),
        children(values->children.size()) {
    for (std::size_t i = 0; i < buffers.size(); ++i) pointers[i] = buffers[i].data;
  }

  std::vector<Array> buffers;
  std::vector<const void*> pointers;
  Children<ArrowArray> children;
};

template <typename Owned, typename Struct>
void release(Struct* released) {
  delete static_cast<Owned*>(released->private_data);
  released->private_data = nullptr;
  released->release = nullptr;
}

class OwnedStream {
 public:
  explicit OwnedStream(std::unique_ptr<ArrowBatches> batches)
      : batches_(std::move(batches)) {}

  int get_schema(ArrowSchema* out) noexcept {
    return errno_of([&] { export_field(batches_->field(), out); });
  }

  int get_next(ArrowArray* out) noexcept {
    if (errno_value_ != 0) return errno_value_;
    errno_value_ = errno_of([&] {
      ArrowValues values;
      if (!is_finished_ && batches_->next(&values)) {
        export_values(std::move(values), out);
      } else {
        is_finished_ = true;
        out->release = nullptr;
      }
    });
    return errno_value_;
  }

  const char* error() const noexcept {
    return error_.empty() ? nullptr : error_.c_str();
  }

 private:
  template <typename Step>
  int errno_of(Step step) noexcept {
    try {
      try {
        step();
        return 0;
      } catch (const ArrowStreamError& error) {
        error_ = error.what();
        return error.errno_value;
      } catch (const std::bad_alloc&) {
        throw;
      } catch (const std::exception& error) {
        error_ = error.what();
        return EIO;
      }
    } catch (const std::bad_alloc&) {  // copying the message may throw it, too
      error_.clear();
      return ENOMEM;
    }
  }

  std::unique_ptr<ArrowBatches> batches_;
  bool is_finished_ = false;
  int errno_value_ = 0;  // of the error that ended the stream
  std::string error_;
};

OwnedStream* owned_stream(ArrowArrayStream* stream) {
  return static_cast<OwnedStream*>(stream->private_data);
}

}  // namespace

void export_field(const ArrowField& field, ArrowSchema* out) {
  auto owned = std::make_unique<OwnedField>(field);
  for (std::size_t i = 0; i < field.children.size(); ++i) {
    export_field(field.children[i], owned->children[i]);
  }
  *out = {};
  out->format = owned->format.c_str();
  out->name = owned->name.c_str();
  out->flags = field.is_nullable ? ARROW_FLAG_NULLABLE : 0;
  out->n_children = owned->children.size();
  out->children = owned->children.pointers();
  out->release = &release<OwnedField, ArrowSchema>;
  out->private_data = owned.release();
}

void export_values(ArrowValues values, ArrowArray* out) {
  auto owned = std::make_unique<OwnedValues>(&values);
  for (std::size_t i = 0; i < values.children.size(); ++i) {
    export_values(std::move(values.children[i]), owned->children[i]);
  }
  *out = {};
  out->length = values.length;
  out->null_count = values.null_count;
  out->n_buffers = static_cast<std::int64_t>(owned->pointers.size());
  out->n_children = owned->children.size();
  out->buffers = owned->pointers.data();
  out->children = owned->children.pointers();
  out->release = &release<OwnedValues, ArrowArray>;
  out->private_data = owned.release();
}

void export_batches(std::unique_ptr<ArrowBatches> batches, ArrowArrayStream* out) {
  auto stream = std::make_unique<OwnedStream>(std::move(batches));
  *out = {};
  out->get_schema = [](ArrowArrayStream* self, ArrowSchema* schema) {
    return owned_stream(self)->get_schema(schema);
  };
  out->get_next = [](ArrowArrayStream* self, ArrowArray* array) {
    return owned_stream(self)->get_next(array);
  };
  out->get_last_error = [](ArrowArrayStream* self) {
    return owned_stream(self)->error();
  };
  out->release = &release<OwnedStream, ArrowArrayStream>;
  out->private_data = stream.release();
}

}  // namespace fastrec
