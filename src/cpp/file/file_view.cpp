#include "file/file_view.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace fastrec {
namespace {

// Linux reads no more for one advice than it would read ahead of a scan, 128 KiB unless
// somebody set it to another value.
constexpr std::uint64_t kAdviceBytes = std::uint64_t{128} << 10;

constexpr std::uint64_t kProbes = 8;

}  // namespace

FileView::FileView(std::string path, Io io, std::string name)
    : name_(name.empty() ? path : std::move(name)) {
  file_.emplace(std::move(path));
  identity_ = file_->identity();
  is_remote_ = file_->is_remote();
  if (io == Io::kMmap || (io == Io::kAuto && !is_remote_)) {
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

void FileView::read_ahead(std::uint64_t offset, std::uint64_t length) const noexcept {
  if (offset >= size()) return;
  const std::uint64_t end = offset + std::min(length, size() - offset);
  while (offset < end) {
    const std::uint64_t n = std::min(end - offset, kAdviceBytes);
    mapping_ ? mapping_->will_need(offset, n) : file_->will_need(offset, n);
    offset += n;
  }
}

void FileView::will_need(std::uint64_t offset, std::uint64_t length) const noexcept {
  if (offset >= size()) return;
  length = std::min(length, size() - offset);
  if (!is_remote_ && length > kProbes * kAdviceBytes) {
    // Looking into the page cache takes some microseconds for each megabyte. So a few
    // single bytes are asked for: if none had to be read, nor do the others.
    const std::uint64_t before = count_disk_reads();
    for (std::uint64_t i = 0; i < kProbes; ++i) {
      read_ahead(offset + i * (length / kProbes), 1);
    }
    if (count_disk_reads() == before) return;
  }
  read_ahead(offset, length);
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
