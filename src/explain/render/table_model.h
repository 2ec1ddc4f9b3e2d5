// SPDX-License-Identifier: Apache-2.0
// The key-averages table before it is text: columns and cells, shared by its renderers.
#pragma once

#include <string>
#include <vector>

#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"

namespace epilogue::trace {

struct TableColumn {
  std::string header;
  size_t width = 12;
  bool left_aligned = false;
};

struct TableModel {
  std::vector<TableColumn> columns;
  std::vector<std::vector<std::string>> cells;        // [row][column]
  std::vector<std::vector<std::string>> more_frames;  // [row]: the stack below its first frame
  std::vector<std::string> footers;                   // "Self CPU time total: 1.234ms"
  bool has_stack = false;                             // then Source Location is a column
  bool has_flops = false;                             // then FLOPs are the last column
};

// Which columns there are and what they are scaled by depends on all rows, also those not shown.
TableModel table_model(const KeyAverages& averages, const TableOptions& options);

}  // namespace epilogue::trace
