// CheckRecords: what the fuzz targets of records do with a run of them (runs.h).
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
  // `columns` is read into by the reference alone, `both_ways` by the fast way, too.
  CheckRecords(std::shared_ptr<const Schema> columns,
               std::shared_ptr<const Schema> both_ways)
      : columns_(std::move(columns)), both_ways_(std::move(both_ways)) {}

  // Aborts where a batch is not in order, or the two ways differ.
  void check(Bytes run) {
    const std::vector<Bytes> records = pieces_of(run);
    if (records.empty()) return;
    (void)columns_.check(records.back());
    Survey survey(100);
    for (const Bytes record : records) (void)survey.add(record);
    if (!both_ways_.is_same(records)) std::abort();
  }

 private:
  CheckColumns columns_;
  BothWays both_ways_;
};

}  // namespace fastrec::testing
