#include "file/file_view.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace fastrec {

FileView::FileView(std::string path, Io io, std::string name)
    : name_(name.empty() ? path : std::move(name)) {
  file_.emplace(std::move(path));
  identity_ = file_->identity();
  if (io == Io::kMmap || (io == Io::kAuto && !file_->is_remote())) {
    try {
      mapping_.emplace(*file_);
      file_.reset();
    } catch (const IoError&) {
      // Some file systems have no mappings, and a process may have too many.
      if (io == Io::kMmap) throw;
    }
  }
}

Bytes FileView::copy(std::uint64_t offset, std::uint64_t length, Buffer* buffer) const {
  if (offset >= size()) return {};
  const auto n = static_cast<std::size_t>(std::min(length, size() - offset));
  const MutableBytes room = buffer->room(n);
  if (mapping_) {
    std::memcpy(room.data(), mapping_->bytes().data() + offset, n);
    return room;
  }
  return room.first(file_->read_at(offset, room));
}

FileTable::FileTable(std::vector<std::string> paths, std::vector<Io> ios,
                     std::vector<std::string> names)
    : paths_(std::move(paths)),
      ios_(std::move(ios)),
      names_(std::move(names)),
      views_(paths_.size()),
      expected_(paths_.size()) {}

void FileTable::expect(std::size_t index, const FileIdentity& identity) {
  const std::lock_guard lock(mutex_);
  expected_[index] = identity;
  if (!views_[index] || views_[index]->identity() == identity) return;
  views_[index].reset();
  std::erase(mapped_, index);
  std::erase(read_, index);
}

std::shared_ptr<const FileView> FileTable::open(std::size_t index) {
  {
    const std::lock_guard lock(mutex_);
    if (views_[index]) return views_[index];
  }
  // A remote file may take its time, for which others shall not wait. So two threads
  // may open the same file: the view that comes second is dropped.
  auto view = std::make_shared<const FileView>(
      paths_[index], ios_.size() == 1 ? ios_[0] : ios_[index], name(index));
  std::shared_ptr<const FileView> evicted;  // closed after the lock is released

  const std::lock_guard lock(mutex_);
  if (views_[index]) return views_[index];
  const std::optional<FileIdentity>& expected = expected_[index];
  if (expected && view->identity() != *expected) {
    const bool is_resized = view->size() != expected->size;
    throw Error(Errc::kFileChanged,
                is_resized ? "the file changed since it was indexed (" +
                                 std::to_string(view->size()) + " bytes now, " +
                                 std::to_string(expected->size) + " then)"
                           : "the file was written again since it was indexed",
                name(index));
  }
  const bool is_mapped = view->mapping() != nullptr;
  std::deque<std::size_t>& open = is_mapped ? mapped_ : read_;
  if (open.size() == (is_mapped ? kMostMappings : kMostDescriptors)) {
    evicted = std::move(views_[open.front()]);
    open.pop_front();
  }
  open.push_back(index);
  views_[index] = view;
  return view;
}

}  // namespace fastrec
