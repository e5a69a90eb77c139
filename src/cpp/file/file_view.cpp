#include "file/file_view.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <utility>

namespace fastrec {
namespace {

// Linux limits each hint to the readahead size of the device, 128 KiB by default.
constexpr std::uint64_t kAdviceBytes = std::uint64_t{128} << 10;

constexpr std::uint64_t kProbes = 8;

// A replaced file is not an error: the view still reads the old version.
std::optional<Error> error_if_changed(const FileView& view) {
  std::string change = view.describe_change(FileView::Replaced::kIgnored);
  if (change.empty()) return std::nullopt;
  return Error(Errc::kFileChanged, std::move(change), view.name());
}

bool is_same_file(const FileState& a, const FileState& b) noexcept {
  return a.device == b.device && a.inode == b.inode;
}

}  // namespace

FileView::FileView(std::string path, Io io, std::string name,
                   std::uint64_t mapped_bytes_min)
    : path_(std::move(path)), name_(name.empty() ? path_ : std::move(name)) {
  file_.emplace(path_);
  state_ = file_->state();
  is_remote_ = file_->is_remote();
  const bool is_mappable = !is_remote_ && size() >= mapped_bytes_min;
  if (io == Io::kMmap || (io == Io::kAuto && is_mappable)) {
    try {
      mapping_.emplace(*file_);
      file_.reset();
    } catch (const IoError&) {
      // Some file systems do not support mappings, and a process may have too many.
      if (io == Io::kMmap) throw;
    }
  }
}

FileView::FileView(std::string name, std::shared_ptr<RangeRequests> requests,
                   std::size_t file)
    : name_(std::move(name)),
      state_{.identity = requests->identity(file)},
      is_remote_(true),
      requests_(std::move(requests)),
      number_(file) {}

Bytes FileView::copy(std::uint64_t offset, std::uint64_t length, Buffer* buffer,
                     Use use) const {
  if (offset >= size()) return {};
  const auto n = static_cast<std::size_t>(std::min(length, size() - offset));
  if (requests_) return requests_->read(number_, offset, n, buffer, use);
  const MutableBytes room = buffer->room(n);
  if (mapping_) {
    for (std::size_t at = 0; at < n; at += kReleasedBytes) {
      const std::size_t piece = std::min<std::size_t>(n - at, kReleasedBytes);
      std::memcpy(room.data() + at, mapping_->bytes().data() + offset + at, piece);
      if (n >= kReleasedBytes) mapping_->release(offset + at, piece);
    }
    check_valid(offset, n);
    return room;
  }
  return room.first(file_->read_at(offset, room));
}

// Reports that some of the mapped bytes from `offset` on are lost.
void FileView::throw_lost(std::uint64_t offset) const {
  const std::optional<FileState> now = state_at(path_);
  const bool is_same = now && is_same_file(*now, state_);
  // An unchanged file loses pages when a disk or a server fails.
  if (is_same && now->identity == identity()) throw IoError(EIO, name_);
  std::string reason = "the file was shortened while it was mapped";
  if (is_same) reason += " (now " + std::to_string(now->identity.size) + " bytes)";
  Error error(Errc::kFileChanged, std::move(reason), name_);
  error.offset = std::max<std::uint64_t>(offset, mapping_->n_valid());
  throw error;
}

std::string FileView::describe_change(Replaced replaced) const {
  if (requests_) return {};  // the fetchers check each range
  if (replaced == Replaced::kIgnored && file_ && file_->is_unchanged()) return {};
  const std::optional<FileState> now = state_at(path_);
  if (!now || !is_same_file(*now, state_)) {
    return replaced == Replaced::kIgnored
               ? ""
               : "the file was removed or replaced after it was opened";
  }
  if (now->identity == identity()) return {};
  return now->identity.size == size() ? "the file was modified after it was opened"
                                      : "the file was resized after it was opened";
}

std::unique_ptr<const FileView> FileView::reopen_for_random_reads() const {
  if (requests_) {
    return std::make_unique<const FileView>(name_, requests_, number_);
  }
  auto view = std::make_unique<const FileView>(path_, Io::kPread, name_);
  if (!is_same_file(view->state_, state_) || view->identity() != identity()) {
    return nullptr;
  }
  view->file_->advise_random();
  return view;
}

void FileView::read_ahead(std::uint64_t offset, std::uint64_t length) const noexcept {
  if (offset >= size()) return;
  const std::uint64_t end = offset + std::min(length, size() - offset);
  if (requests_) return requests_->read_ahead(number_, offset, end - offset);
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
    // A hint for bytes in memory still costs some microseconds per megabyte. So this
    // probes a few bytes: if none causes a disk read, the rest is in memory too.
    const std::uint64_t before = count_disk_reads();
    for (std::uint64_t i = 0; i < kProbes; ++i) {
      read_ahead(offset + i * (length / kProbes), 1);
    }
    if (count_disk_reads() == before) return;
  }
  read_ahead(offset, length);
}

FileTable::FileTable(std::vector<std::string> paths, std::vector<Io> ios,
                     std::vector<std::string> names, std::uint64_t record_bytes_max,
                     std::shared_ptr<RangeRequests> requests, bool is_assumed_plain)
    : paths_(std::move(paths)),
      ios_(std::move(ios)),
      names_(std::move(names)),
      record_bytes_max_(record_bytes_max),
      requests_(std::move(requests)),
      is_assumed_plain_(is_assumed_plain),
      views_(paths_.size()) {}

FileTable::~FileTable() {
  if (requests_) requests_->stop();
}

void FileTable::expect(std::vector<FileIdentity> identities) {
  const std::lock_guard lock(mutex_);
  expected_ = std::move(identities);
  const auto drop_changed = [&](std::size_t index) {
    if (expected_.empty() || views_[index]->identity() == expected_[index])
      return false;
    views_[index].reset();
    return true;
  };
  std::erase_if(mapped_, drop_changed);
  std::erase_if(read_, drop_changed);
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
  // Opens without the lock, because a remote file may be slow. If two threads open the
  // same file, the second view is dropped.
  std::shared_ptr<const FileView> evicted;
  const std::uint64_t mapped_bytes_min =
      size() > kMaxMappings ? FileView::kSmallBytes : 0;
  auto view = keep(index, view_of(index, mapped_bytes_min), &evicted);
  if (evicted) {
    std::optional<Error> error = error_if_changed(*evicted);
    const std::lock_guard lock(mutex_);
    if (error && !changed_) changed_ = std::move(error);
  }
  return view;
}

void FileTable::will_need(std::span<const FileRange> ranges) noexcept {
  try {
    std::vector<FileRange> remote;
    remote.reserve(ranges.size());
    for (const FileRange& range : ranges) {
      if (io_of(range.file) == Io::kRanges) {
        if (range.end <= requests_->identity(range.file).size) remote.push_back(range);
        continue;
      }
      try {
        open(range.file)->will_need(range.begin, range.n_bytes());
      } catch (const std::exception&) {
        continue;  // the thread that reads these bytes reports it
      }
    }
    if (!remote.empty()) requests_->read_ahead(remote);
  } catch (const std::bad_alloc&) {
    return;
  }
}

std::shared_ptr<const FileView> FileTable::view_of(
    std::size_t index, std::uint64_t mapped_bytes_min) const {
  const Io io = io_of(index);
  if (io == Io::kRanges) {
    return std::make_shared<const FileView>(name(index), requests_, index);
  }
  return std::make_shared<const FileView>(paths_[index], io, name(index),
                                          mapped_bytes_min);
}

// Adds `view`, unless another thread was faster. If the table is full, moves the oldest
// view to `*evicted`.
std::shared_ptr<const FileView> FileTable::keep(
    std::size_t index, std::shared_ptr<const FileView> view,
    std::shared_ptr<const FileView>* evicted) {
  const std::lock_guard lock(mutex_);
  if (views_[index]) return views_[index];
  const FileIdentity* expected = expected_.empty() ? nullptr : &expected_[index];
  if (expected != nullptr && view->identity() != *expected) {
    const bool is_resized = view->size() != expected->size;
    throw Error(Errc::kFileChanged,
                is_resized ? "the file was resized after it was indexed (from " +
                                 std::to_string(expected->size) + " to " +
                                 std::to_string(view->size()) + " bytes)"
                           : "the file was modified after it was indexed",
                name(index));
  }
  const bool is_read = view->has_descriptor();
  std::deque<std::size_t>& open = is_read ? read_ : mapped_;
  if (open.size() == (is_read ? kMaxDescriptors : kMaxMappings)) {
    *evicted = std::move(views_[open.front()]);
    open.pop_front();
  }
  open.push_back(index);
  views_[index] = view;
  return view;
}

}  // namespace fastrec
