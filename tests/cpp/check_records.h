// CheckRecords: checks a byte and a run (runs.h) of records, for the fuzz targets.
//
// The byte selects one of the checks, because each of them takes most of the time of
// an input. The mutator changes it alone (Mutator::choice_and), so that what one check
// finds reaches the others.
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
  void check(Bytes input) {
    if (input.empty()) return;
    const std::vector<Bytes> records = pieces_of(input.subspan(1));
    if (records.empty()) return;
    switch (input[0] % 4) {
      case 0:
        (void)columns_.check(records.back(), input[0] / 4 % 2 != 0);
        return;
      case 1: {
        Survey survey(100);
        for (const Bytes record : records) (void)survey.add(record);
        return;
      }
      default:
        if (!both_modes_.is_same(records)) std::abort();
    }
  }

 private:
  CheckColumns columns_;
  BothModes both_modes_;
};

}  // namespace fastrec::testing
