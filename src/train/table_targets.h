// SPDX-License-Identifier: Apache-2.0
// The first pass over a table: what is to be learned of each row.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "epilogue/base/result.h"
#include "train/table_source.h"

namespace epilogue::train {

struct TableTargets {
  Task task = Task::classification;
  std::vector<std::string> classes;
  std::vector<double> values;        // of each row: a class's number or a number; NaN: missing
  std::vector<int64_t> part_begins;  // the first row of each part
  std::vector<int64_t> kept_begins;  // rows with a target before each part
  int64_t kept = 0;                  // rows with a target

  int64_t rows() const { return static_cast<int64_t>(values.size()); }

  // Runs body(row, k, target) for those of a part's rows that have a target; each is the k-th of
  // all. Ends with the first failure.
  template <class Body>
  Status for_each_kept(size_t part, int64_t part_rows, Body&& body) const {
    int64_t k = kept_begins[part];
    for (int64_t row = 0; row < part_rows; ++row) {
      const double target = values[static_cast<size_t>(part_begins[part] + row)];
      if (std::isnan(target)) continue;
      if (Status s = body(row, k++, target); !s) return s;
    }
    return ok_status();
  }
};

// Codes: TableRows, TableTarget, CsvNumber, and those of the source.
Result<TableTargets> read_targets(const TableSource& source, size_t column,
                                  std::optional<Task> task);

}  // namespace epilogue::train
