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

#include "both_ways.h"
#include "check_columns.h"
#include "runs.h"
#include "survey/infer.h"

namespace fastrec::testing {

class CheckRecords {
 public:
  // `columns` is read by the reference only, `both_ways` also the fast way.
  CheckRecords(std::shared_ptr<const Schema> columns,
               std::shared_ptr<const Schema> both_ways)
      : columns_(std::move(columns)), both_ways_(std::move(both_ways)) {}

  // Aborts if a batch is inconsistent, or if the two ways differ.
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
        if (!both_ways_.is_same(records)) std::abort();
    }
  }

 private:
  CheckColumns columns_;
  BothWays both_ways_;
};

}  // namespace fastrec::testing
