// SPDX-License-Identifier: Apache-2.0
// The second pass over a table: what its columns are.
#pragma once

#include <span>
#include <vector>

#include "train/table_source.h"
#include "train/table_targets.h"

namespace epilogue::train {

// Where a row with a target goes.
struct Split {
  std::vector<int64_t> place;  // of the k-th of them: from 0 on among the test rows, then training
  int64_t held_out = 0;        // test rows
  bool is_test(int64_t k) const { return place[static_cast<size_t>(k)] < held_out; }
};

// Codes: CsvNumber, CsvDate, TableColumn, and those of the source.
Result<std::vector<Feature>> read_features(const TableSource& source, const TableOptions& options,
                                           std::span<const size_t> columns,
                                           const TableTargets& targets, const Split& split,
                                           TableNotes* notes);

}  // namespace epilogue::train
