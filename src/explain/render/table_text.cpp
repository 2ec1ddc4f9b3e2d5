// SPDX-License-Identifier: Apache-2.0
// The table as torch.profiler prints it, to the character.
#include <utility>

#include "explain/render/table_model.h"
#include "explain/render/utf8.h"

namespace epilogue::trace {
namespace {

constexpr size_t kSpacing = 2;  // follows every column, also the last

// Texts wider than their column push the rest of the line to the right, as in PyTorch.
std::string line(const std::vector<TableColumn>& columns, const std::vector<std::string>& cells) {
  std::string out;
  for (size_t i = 0; i < columns.size(); ++i) {
    const TableColumn& column = columns[i];
    out +=
        column.left_aligned ? pad_right(cells[i], column.width) : pad_left(cells[i], column.width);
    out.append(kSpacing, ' ');
  }
  return out + "\n";
}

std::string separator(const std::vector<TableColumn>& columns) {
  std::string out;
  for (const TableColumn& column : columns) {
    out.append(column.width, '-');
    out.append(kSpacing, ' ');
  }
  return out + "\n";
}

}  // namespace

std::string format_table(const KeyAverages& averages, const TableOptions& options) {
  if (averages.rows.empty()) return "";
  TableModel model = table_model(averages, options);
  const std::vector<TableColumn>& columns = model.columns;
  // PyTorch's rows have FLOPs before the source, its headers the other way round.
  const bool swaps_last = model.has_stack && model.has_flops;

  std::string out;
  const std::string rule = separator(columns);
  const std::string thick_rule = std::string(rule.size() - 1 - kSpacing, '=') + "\n";
  if (options.header) out += thick_rule + *options.header + "\n";
  if (options.top_level_events_only)
    out += thick_rule + "This report only display top-level ops statistics\n";
  std::vector<std::string> headers;
  headers.reserve(columns.size());
  for (const TableColumn& column : columns) headers.push_back(column.header);
  out += rule + line(columns, headers) + rule;
  for (size_t i = 0; i < model.cells.size(); ++i) {
    std::vector<std::string>& cells = model.cells[i];
    if (swaps_last) std::swap(cells[cells.size() - 1], cells[cells.size() - 2]);
    out += line(columns, cells);
    if (!model.has_stack) continue;
    std::vector<std::string> empty(columns.size());
    for (const std::string& frame : model.more_frames[i]) {
      empty.back() = frame;
      out += line(columns, empty);
    }
    empty.back().clear();
    out += line(columns, empty);
  }
  out += rule;
  for (const std::string& footer : model.footers) out += footer + "\n";
  return out;
}

}  // namespace epilogue::trace
