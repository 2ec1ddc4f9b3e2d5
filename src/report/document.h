// SPDX-License-Identifier: Apache-2.0
// A report before it is text or Markdown: headings, sentences, lists and tables.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace epilogue::trace {

struct Heading {
  std::string text;
};
struct Paragraph {
  std::string text;
};
// Items with lines below them.
struct Bullets {
  struct Item {
    std::string text;
    std::vector<std::string> below;
  };
  std::vector<Item> items;
};
struct Grid {
  struct Column {
    std::string header;
    bool is_left_aligned = false;
    size_t max_width = 60;  // longer cells are cut, with "..."
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells as columns
  std::string more;                            // "and 12 more"; "" where all rows are there
};

using Block = std::variant<Heading, Paragraph, Bullets, Grid>;
using Document = std::vector<Block>;

// Plain text of at most 120 columns where cells allow it; headings bold with terminal escapes where
// asked for. Control characters of names are escaped.
std::string document_text(const Document& document, bool use_bold);
std::string document_markdown(const Document& document);

// The first `top` rows (-1: all) of a grid; what is left out is counted in `more`.
void limit_rows(Grid& grid, int top);

}  // namespace epilogue::trace
