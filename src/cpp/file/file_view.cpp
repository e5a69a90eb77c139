#include "file/file_view.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace fastrec {
namespace {

// Linux reads no more for one advice than it would read ahead of a scan, 128 KiB unless
// somebody set it to another value.
constexpr std::uint64_t kAdviceBytes = std::uint64_t{128} << 10;

constexpr std::uint64_t kProbes = 8;

// A file that was replaced is read as it was.
std::optional<Error> error_if_changed(const FileView& view) {
  const FileView::Change change = view.change();
  if (change != FileView::Change::kResized && change != FileView::Change::kRewritten) {
    return std::nullopt;
  }
  return Error(Errc::kFileChanged, view.describe_change(), view.name());
}

bool is_same(const FileState& a, const FileState& b) noexcept {
  return a.device == b.device && a.inode == b.inode;
}

}  // namespace

FileView::FileView(std::string path, Io io, std::string name)
    : path_(std::move(path)), name_(name.empty() ? path_ : std::move(name)) {
  file_.emplace(path_);
  state_ = file_->state();
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
    check_kept(offset, n);
    return room;
  }
  return room.first(file_->read_at(offset, room));
}

// The bytes from `offset` on were read from a mapping, and some of them are lost.
void FileView::throw_lost(std::uint64_t offset) const {
  const std::optional<FileState> now = look_at(path_);
  const bool is_same_file = now && is_same(*now, state_);
  // Pages of a file that is what it was are lost when a disk or a server fails.
  if (is_same_file && now->identity == identity()) throw IoError(EIO, name_);
  std::string reason = "the file was shortened while it was mapped";
  if (is_same_file) reason += " (now " + std::to_string(now->identity.size) + " bytes)";
  Error error(Errc::kFileChanged, std::move(reason), name_);
  error.offset = std::max<std::uint64_t>(offset, mapping_->n_kept());
  throw error;
}

FileView::Change FileView::change() const noexcept {
  const std::optional<FileState> now = look_at(path_);
  if (!now || !is_same(*now, state_)) return Change::kReplaced;
  if (now->identity == identity()) return Change::kNone;
  return now->identity.size == size() ? Change::kRewritten : Change::kResized;
}

std::string FileView::describe_change() const {
  switch (change()) {
    case Change::kNone:
      break;
    case Change::kResized:
      return "the file was shortened or extended since it was opened";
    case Change::kRewritten:
      return "the file was written again since it was opened";
    case Change::kReplaced:
      return "the file was removed or replaced since it was opened";
  }
  return {};
}

std::unique_ptr<const FileView> FileView::reopened_for_random_reads() const {
  auto view = std::make_unique<const FileView>(path_, Io::kPread, name_);
  if (!is_same(view->state_, state_) || view->identity() != identity()) return nullptr;
  view->file_->expect_random();
  return view;
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
                     std::vector<std::string> names, std::uint64_t record_bytes_max)
    : paths_(std::move(paths)),
      ios_(std::move(ios)),
      names_(std::move(names)),
      record_bytes_max_(record_bytes_max),
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

std::string FileTable::describe_change(std::size_t index) const {
  std::shared_ptr<const FileView> view;
  {
    const std::lock_guard lock(mutex_);
    view = views_[index];
  }
  return view ? view->describe_change() : std::string();
}

void FileTable::check_unchanged() const {
  std::vector<std::shared_ptr<const FileView>> open;
  {
    const std::lock_guard lock(mutex_);
    if (changed_) throw Error(*changed_);
    for (const auto& view : views_) {
      if (view) open.push_back(view);
    }
  }
  for (const auto& view : open) {
    if (const std::optional<Error> error = error_if_changed(*view)) throw Error(*error);
  }
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
  std::shared_ptr<const FileView> evicted;
  view = keep(index, std::move(view), &evicted);
  if (evicted) {
    std::optional<Error> error = error_if_changed(*evicted);
    const std::lock_guard lock(mutex_);
    if (error && !changed_) changed_ = std::move(error);
  }
  return view;
}

// Takes `view` in, unless another thread was faster. What has to be closed for it goes
// to `*evicted`.
std::shared_ptr<const FileView> FileTable::keep(
    std::size_t index, std::shared_ptr<const FileView> view,
    std::shared_ptr<const FileView>* evicted) {
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
    *evicted = std::move(views_[open.front()]);
    open.pop_front();
  }
  open.push_back(index);
  views_[index] = view;
  return view;
}

}  // namespace fastrec
