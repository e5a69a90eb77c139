// Claims: which records make up the next step, found out one step at a time.
//
// Whoever is going to decode a step claims it first. Claims are made in the order of
// the steps, one at a time; decoding needs no order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "file/file_view.h"
#include "loader/order.h"
#include "record/catalog.h"

namespace fastrec {

// The records of one step.
struct Claim {
  std::uint64_t step = 0;
  std::uint64_t first_position = 0;
  std::vector<Place> places;  // empty: there are no more steps
};

class Claims {
 public:
  virtual ~Claims() = default;

  // Fills `*claim` with the step after the last one. Throws Error and IoError, which
  // belong to this step: what was claimed before is not concerned.
  virtual void next(Claim* claim) = 0;
};

// Steps of a data set whose index is at hand: arithmetic.
class IndexedClaims final : public Claims {
 public:
  IndexedClaims(std::shared_ptr<const Catalog> catalog, StepGrid grid);
  void next(Claim* claim) override;

 private:
  std::shared_ptr<const Catalog> catalog_;
  StepGrid grid_;
  std::uint64_t step_ = 0;
};

// Steps of a data set in file order without an index: the files are walked, header by
// header, as far as steps are claimed. So the first batch comes at once.
class WalkedClaims final : public Claims {
 public:
  WalkedClaims(std::shared_ptr<FileTable> files, StepGrid grid);
  void next(Claim* claim) override;

 private:
  bool walk(Place* place);
  Bytes header_at(std::uint64_t offset);

  std::shared_ptr<FileTable> files_;
  StepGrid grid_;
  std::uint64_t step_ = 0;
  std::size_t file_ = 0;
  std::shared_ptr<const FileView> view_;  // of file_, once it is open
  std::uint64_t offset_ = 0;              // of the next frame
  std::uint64_t record_ = 0;              // its number in the file
  Buffer buffer_;
  Bytes block_;  // where the file is read by pread: its bytes from block_begin_ on
  std::uint64_t block_begin_ = 0;
};

}  // namespace fastrec
