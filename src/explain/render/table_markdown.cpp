// SPDX-License-Identifier: Apache-2.0
// The table for a README or an issue.
#include "explain/render/table_model.h"

namespace epilogue::trace {
namespace {

std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '\\' || c == '`' || c == '*' || c == '_' || c == '<') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  const size_t first = out.find_first_not_of(' ');  // FLOPs come padded
  return first == std::string::npos ? "" : out.substr(first);
}

}  // namespace

std::string table_markdown(const KeyAverages& averages, const TableOptions& options) {
  if (averages.rows.empty()) return "";
  const TableModel model = table_model(averages, options);
  std::string out;
  if (options.header) out += "**" + *options.header + "**\n\n";
  std::string rule;
  for (size_t i = 0; i < model.columns.size(); ++i) {
    const bool is_text = i == 0 || model.columns[i].left_aligned;
    out += "| " + cell(model.columns[i].header) + " ";
    rule += is_text ? "|:---" : "|---:";
  }
  out += "|\n" + rule + "|\n";
  for (const std::vector<std::string>& row : model.cells) {
    for (const std::string& text : row) out += "| " + cell(text) + " ";
    out += "|\n";
  }
  out += "\n";
  for (const std::string& footer : model.footers) out += footer + "  \n";
  return out;
}

}  // namespace epilogue::trace
