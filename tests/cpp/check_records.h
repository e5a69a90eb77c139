// CheckRecords: checks a run (runs.h) of records, for the fuzz targets.
#pragma once

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "both_modes.h"
#include "check_columns.h"
#include "runs.h"
#include "survey/infer.h"

namespace fastrec::testing {

class CheckRecords {
 public:
  // `columns` is read in reference mode only, `both_modes` in fast mode, too.
  CheckRecords(std::shared_ptr<const Schema> columns,
               std::shared_ptr<const Schema> both_modes)
      : columns_(std::move(columns)), both_modes_(std::move(both_modes)) {}

  // Aborts if a batch is inconsistent, or if the two modes differ.
  void check(Bytes run) {
    const std::vector<Bytes> records = pieces_of(run);
    if (records.empty()) return;
    (void)columns_.check(records.back());
    Survey survey(100);
    for (const Bytes record : records) (void)survey.add(record);
    if (!both_modes_.is_same(records)) std::abort();
  }

 private:
  CheckColumns columns_;
  BothModes both_modes_;
};

}  // namespace fastrec::testing
