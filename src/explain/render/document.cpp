// SPDX-License-Identifier: Apache-2.0
#include "explain/render/document.h"

#include <algorithm>

#include "base/printable.h"
#include "explain/render/utf8.h"

namespace epilogue::trace {
namespace {

constexpr size_t kMaxLine = 2000;

std::string clean(const std::string& text) { return printable(text, kMaxLine); }

class TextRenderer {
 public:
  explicit TextRenderer(bool use_bold) : use_bold_(use_bold) {}

  void operator()(const Heading& h) {
    if (!text_.empty()) text_ += "\n";
    text_ += (use_bold_ ? "\033[1m" : "") + clean(h.text) + (use_bold_ ? "\033[0m" : "") + "\n";
  }
  void operator()(const Paragraph& p) { text_ += clean(p.text) + "\n"; }
  void operator()(const Bullets& list) {
    for (const Bullets::Item& item : list.items) {
      text_ += "- " + clean(item.text) + "\n";
      for (const std::string& line : item.below) text_ += "    " + clean(line) + "\n";
    }
  }
  void operator()(const Grid& grid) {
    std::vector<size_t> widths;
    widths.reserve(grid.columns.size());
    for (size_t c = 0; c < grid.columns.size(); ++c) widths.push_back(width(grid, c));
    std::vector<std::string> headers;
    headers.reserve(grid.columns.size());
    for (const Grid::Column& column : grid.columns) headers.push_back(column.header);
    add_row(grid, headers, widths);
    for (const auto& row : grid.rows) add_row(grid, row, widths);
    if (!grid.more.empty()) text_ += "  " + grid.more + "\n";
  }
  void operator()(const Table& table) {
    if (table.has_text_header)
      add_line(table, [](const Table::Column& column, size_t) { return column.header; });
    for (const auto& row : table.rows)
      add_line(table, [&](const Table::Column&, size_t c) { return clean(row[c].text); });
  }
  void operator()(const Preformatted& p) { text_ += p.text; }
  std::string take() { return std::move(text_); }

 private:
  static std::string cell(const Grid::Column& column, const std::string& text) {
    return printable(text, column.max_width);
  }
  static size_t width(const Grid& grid, size_t c) {
    size_t widest = utf8_length(grid.columns[c].header);
    for (const auto& row : grid.rows)
      widest = std::max(widest, utf8_length(cell(grid.columns[c], row[c])));
    return widest;
  }
  void add_row(const Grid& grid, const std::vector<std::string>& row,
               const std::vector<size_t>& widths) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string text = cell(grid.columns[c], row[c]);
      const std::string pad(widths[c] - std::min(widths[c], utf8_length(text)), ' ');
      line += "  " + (grid.columns[c].is_left_aligned ? text + pad : pad + text);
    }
    text_ += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  // `cell(column, index)` gives the text of a cell.
  template <class CellOf>
  void add_line(const Table& table, const CellOf& cell) {
    std::string line;
    bool is_first = true;
    for (size_t c = 0; c < table.columns.size(); ++c) {
      const Table::Column& column = table.columns[c];
      if (!column.is_for_people) continue;
      if (!is_first) line.append(column.gap, ' ');
      is_first = false;
      const std::string text = cell(column, c);
      line += column.is_left_aligned ? pad_right(text, column.width) : pad_left(text, column.width);
    }
    text_ += line + "\n";
  }

  bool use_bold_;
  std::string text_;
};

class MarkdownRenderer {
 public:
  void operator()(const Heading& h) {
    text_ += "\n" + std::string(static_cast<size_t>(h.level), '#') + " " + plain(h.text) + "\n\n";
  }
  void operator()(const Paragraph& p) { text_ += plain(p.text) + "\n\n"; }
  void operator()(const Bullets& list) {
    for (const Bullets::Item& item : list.items) {
      text_ += "- " + plain(item.text) + "\n";
      for (const std::string& line : item.below) text_ += "  - " + plain(line) + "\n";
    }
    text_ += "\n";
  }
  void operator()(const Grid& grid) {
    std::string rule = "|";
    text_ += "|";
    for (const Grid::Column& column : grid.columns) {
      text_ += " " + column.header + " |";
      rule += column.is_left_aligned ? "---|" : "---:|";
    }
    text_ += "\n" + rule + "\n";
    for (const auto& row : grid.rows) {
      text_ += "|";
      for (const std::string& cell : row) text_ += " " + escaped(plain(cell)) + " |";
      text_ += "\n";
    }
    text_ += grid.more.empty() ? "\n" : "\n" + grid.more + "\n\n";
  }
  void operator()(const Table& table) {
    std::string head = "|";
    std::string rule = "|";
    for (const Table::Column& column : table.columns) {
      if (!column.is_for_people) continue;
      head += column.header.empty() ? " |" : " " + column.header + " |";
      rule += column.is_left_aligned ? "---|" : "---:|";
    }
    text_ += head + "\n" + rule + "\n";
    for (const auto& row : table.rows) {
      text_ += "|";
      for (size_t c = 0; c < row.size(); ++c)
        if (table.columns[c].is_for_people)
          text_ += " " +
                   escaped(row[c].markdown.empty() ? plain(row[c].text) : clean(row[c].markdown)) +
                   " |";
      text_ += "\n";
    }
  }
  void operator()(const Preformatted& p) { text_ += p.markdown; }
  std::string take() {
    text_.erase(0, text_.find_first_not_of('\n'));
    return std::move(text_);
  }

 private:
  // Names may hold markup: it is shown, and is no markup.
  static std::string plain(const std::string& text) {
    std::string out;
    for (const char c : clean(text)) {
      if (c == '<' || c == '&') out += '\\';
      out += c;
    }
    return out;
  }
  // A cell must not end at a bar inside a name.
  static std::string escaped(const std::string& cell) {
    std::string out;
    for (const char c : cell) {
      if (c == '|') out += '\\';
      out += c;
    }
    return out;
  }
  std::string text_;
};

}  // namespace

std::string document_text(const Document& document, bool use_bold) {
  TextRenderer renderer(use_bold);
  for (const Block& block : document.blocks) std::visit(renderer, block);
  return renderer.take();
}

std::string document_markdown(const Document& document) {
  MarkdownRenderer renderer;
  for (const Block& block : document.blocks) std::visit(renderer, block);
  return renderer.take();
}

void limit_rows(Grid& grid, int top) {
  if (top < 0 || grid.rows.size() <= static_cast<size_t>(top)) return;
  grid.more = "and " + std::to_string(grid.rows.size() - static_cast<size_t>(top)) + " more";
  grid.rows.resize(static_cast<size_t>(top));
}

}  // namespace epilogue::trace
