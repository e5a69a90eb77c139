#include "record/indexes.h"

#include <stdexcept>

namespace fastrec {

bool Indexes::has_gaps() const {
  return std::ranges::any_of(files_,
                             [](const Index& index) { return !index.gaps().empty(); });
}

std::vector<Index> merged(std::size_t n_files, std::span<const PartialIndexes> parts) {
  std::vector<const Index*> of_files(n_files);
  for (const auto& [files, indexes] : parts) {
    if (files.size() != indexes->size()) {
      throw std::invalid_argument("a part must have one number per index");
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      of_files.at(static_cast<std::size_t>(files[i])) = &(*indexes)[i];
    }
  }
  std::vector<Index> all;
  all.reserve(n_files);
  for (const Index* index : of_files) {
    if (index == nullptr) throw std::invalid_argument("a file has no index");
    all.push_back(*index);
  }
  return all;
}

std::vector<Index> joined(std::span<const std::shared_ptr<Indexes>> parts) {
  std::vector<Index> all;
  for (const auto& part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

std::vector<Index> build_indexes(const FileTable& files,
                                 std::span<const std::int64_t> numbers,
                                 unsigned n_threads, ScanProgress* progress,
                                 Recovery recovery) {
  std::vector<Index> built;
  built.reserve(numbers.size());
  for (const std::int64_t number : numbers) {
    const auto i = static_cast<std::size_t>(number);
    if (i >= files.size()) throw std::out_of_range("a number is out of range");
    const auto view = files.view_of(i, FileView::kSmallBytes);
    if (files.is_assumed_plain()) check_plain(*view);
    built.push_back(Index::build(*view, n_threads, progress, recovery));
  }
  return built;
}

}  // namespace fastrec
