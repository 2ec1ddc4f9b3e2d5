// SPDX-License-Identifier: Apache-2.0
// A report before it is text, Markdown or JSON: headings, sentences, lists and tables, and what
// scripts get of them. Who makes a report builds one document; renderers do the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace epilogue::trace {

struct Heading {
  std::string text;
  int level = 2;  // in Markdown
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

// What a script gets; the first is null.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string>;

// A table whose columns have widths of their own, and whose rows are a list in JSON. Lines of text
// begin at the margin; longer cells push what follows.
struct Table {
  struct Column {
    std::string key;     // in JSON; "": not there
    std::string header;  // of text and Markdown
    size_t width = 0;    // in text, at least; 0: as the cell is
    bool is_left_aligned = true;
    size_t gap = 1;             // spaces before it, in text
    bool is_for_people = true;  // false: in JSON only
  };
  struct Cell {
    std::string text = {};
    Value value = {};           // for JSON
    std::string markdown = {};  // "": as text
  };
  std::string key;  // of the list of rows in JSON; "": the table is not there
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // as many cells as columns
  bool has_text_header = false;
};

// Lines that somebody else has laid out, ready to print; each form its own.
struct Preformatted {
  std::string text;
  std::string markdown;
};
// The same lines in both.
inline Preformatted preformatted(const std::string& lines) { return {lines, lines}; }

using Block = std::variant<Heading, Paragraph, Bullets, Grid, Table, Preformatted>;

struct Document {
  Document() = default;
  Document(std::initializer_list<Block> list) : blocks(list) {}

  void push_back(Block block) { blocks.push_back(std::move(block)); }

  std::vector<Block> blocks;
  // JSON beside the tables' lists, before them and in this order; schema_version comes first.
  std::vector<std::pair<std::string, Value>> facts;
  bool sorts_keys = false;  // of JSON, by name
  // Gives the whole JSON, with its last newline, where it is more than facts and tables. Called if
  // JSON is asked for.
  std::function<std::string()> json;
  // Gives the CSV where the rows are not those of a Table with a key.
  std::function<std::string()> csv;
};

// Plain text of at most 120 columns where cells allow it; headings bold with terminal escapes where
// asked for. Control characters of names are escaped.
std::string document_text(const Document& document, bool use_bold);
std::string document_markdown(const Document& document);
// One object, or what `json` gives; "" where the document has neither facts, tables with a key, nor
// `json`. Bytes that are not UTF-8 are replaced.
std::string document_json(const Document& document);

// The first table with a key as RFC 4180 has it: a line of keys, then the rows' values; lines end
// with CR LF, what is not known is empty. "" where the document has no such table.
std::string document_csv(const Document& document);
std::string table_csv(const Table& table);

// The first `top` rows (-1: all) of a grid; what is left out is counted in `more`.
void limit_rows(Grid& grid, int top);

}  // namespace epilogue::trace
