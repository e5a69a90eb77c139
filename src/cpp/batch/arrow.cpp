#include "batch/arrow.h"

#include <cerrno>
#include <memory>
#include <new>
#include <utility>

namespace fastrec {
namespace {

// The private data of an ArrowSchema or ArrowArray: everything it points to.
template <typename Struct>
struct Owned {
  explicit Owned(std::size_t n_children)
      : children(n_children), child_pointers(n_children) {
    for (std::size_t i = 0; i < n_children; ++i) child_pointers[i] = &children[i];
  }
  ~Owned() {
    for (Struct& child : children) {
      if (child.release != nullptr) child.release(&child);  // was not moved out
    }
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  std::vector<Struct> children;
  std::vector<Struct*> child_pointers;
  std::string name, format;    // of a schema
  std::vector<Array> buffers;  // of an array
  std::vector<const void*> buffer_pointers;
};

template <typename PrivateData, typename Struct>
void release(Struct* released) {
  delete static_cast<PrivateData*>(released->private_data);
  released->private_data = nullptr;
  released->release = nullptr;
}

// Hands `owned` to `*out`, with its children.
template <typename Struct>
void own(std::unique_ptr<Owned<Struct>> owned, Struct* out) {
  out->n_children = static_cast<std::int64_t>(owned->children.size());
  out->children = owned->child_pointers.data();
  out->release = &release<Owned<Struct>, Struct>;
  out->private_data = owned.release();
}

class OwnedStream {
 public:
  OwnedStream(ArrowField field, ArrowBatches batches)
      : field_(std::move(field)), batches_(std::move(batches)) {}

  int get_schema(ArrowSchema* out) noexcept {
    return errno_of([&] { export_field(field_, out); });
  }

  int get_next(ArrowArray* out) noexcept {
    if (errno_value_ != 0) return errno_value_;
    errno_value_ = errno_of([&] {
      ArrowValues values;
      if (!is_finished_ && batches_(&values)) {
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

  ArrowField field_;
  ArrowBatches batches_;
  bool is_finished_ = false;
  int errno_value_ = 0;  // of the error that ended the stream
  std::string error_;
};

OwnedStream* owned_stream(ArrowArrayStream* stream) {
  return static_cast<OwnedStream*>(stream->private_data);
}

}  // namespace

void export_field(const ArrowField& field, ArrowSchema* out) {
  auto owned = std::make_unique<Owned<ArrowSchema>>(field.children.size());
  for (std::size_t i = 0; i < field.children.size(); ++i) {
    export_field(field.children[i], &owned->children[i]);
  }
  owned->name = field.name;
  owned->format = field.format;
  *out = {};
  out->format = owned->format.c_str();
  out->name = owned->name.c_str();
  out->flags = field.is_nullable ? ARROW_FLAG_NULLABLE : 0;
  own(std::move(owned), out);
}

void export_values(ArrowValues values, ArrowArray* out) {
  auto owned = std::make_unique<Owned<ArrowArray>>(values.children.size());
  for (std::size_t i = 0; i < values.children.size(); ++i) {
    export_values(std::move(values.children[i]), &owned->children[i]);
  }
  owned->buffers = std::move(values.buffers);
  for (const Array& buffer : owned->buffers) {
    owned->buffer_pointers.push_back(buffer.data);
  }
  *out = {};
  out->length = values.length;
  out->null_count = values.null_count;
  out->n_buffers = static_cast<std::int64_t>(owned->buffers.size());
  out->buffers = owned->buffer_pointers.data();
  own(std::move(owned), out);
}

void export_batches(ArrowField field, ArrowBatches batches, ArrowArrayStream* out) {
  auto stream = std::make_unique<OwnedStream>(std::move(field), std::move(batches));
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
