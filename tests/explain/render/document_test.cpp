// SPDX-License-Identifier: Apache-2.0
#include "explain/render/document.h"
#include "support/test.h"

namespace epilogue::trace::document_test {

const Document kDocument = {
    Heading{"Title"},
    Paragraph{"One line."},
    Bullets{{{"first", {"because", "and so"}}, {"second", {}}}},
    Grid{{{"name", true}, {"n"}}, {{"a|b", "1"}, {"longer", "12"}}, "and 3 more"},
};

TEST(Document, AsText) {
  EXPECT_EQ(document_text(kDocument, false),
            "Title\n"
            "One line.\n"
            "- first\n"
            "    because\n"
            "    and so\n"
            "- second\n"
            "  name     n\n"
            "  a|b      1\n"
            "  longer  12\n"
            "  and 3 more\n");
}

TEST(Document, AsCsv) {
  Table table{.key = "rows"};
  table.columns = {{.key = "name"}, {.header = "for people"}, {.key = "n"}, {.key = "x, y"}};
  table.rows = {{{"", "plain"}, {"shown"}, {"", int64_t{3}}, {"", 0.5}},
                {{"", "a \"b\", c"}, {""}, {"", {}}, {"", true}},
                {{"", "two\nlines"}, {""}, {"", int64_t{-1}}, {"", 1e-9}}};
  EXPECT_EQ(document_csv({Paragraph{"text"}, table}),
            "name,n,\"x, y\"\r\n"
            "plain,3,0.5\r\n"
            "\"a \"\"b\"\", c\",,true\r\n"
            "\"two\nlines\",-1,1e-09\r\n");
  EXPECT_EQ(document_csv(kDocument), "");
}

TEST(Document, HeadingsAreBoldWhereAskedFor) {
  EXPECT_EQ(document_text({Heading{"Title"}}, true), "\033[1mTitle\033[0m\n");
}

TEST(Document, AsMarkdown) {
  EXPECT_EQ(document_markdown(kDocument),
            "## Title\n\n"
            "One line.\n\n"
            "- first\n"
            "  - because\n"
            "  - and so\n"
            "- second\n\n"
            "| name | n |\n"
            "|---|---:|\n"
            "| a\\|b | 1 |\n"
            "| longer | 12 |\n\n"
            "and 3 more\n\n");
}

TEST(Document, NamesCannotReachTheTerminal) {
  const Document hostile = {Heading{"\033[31mred"}, Grid{{{"k", true}}, {{"a\nb"}}, ""}};
  EXPECT_EQ(document_text(hostile, false), "\\x1b[31mred\n  k\n  a\\x0ab\n");
}

TEST(Document, MarkupInNamesIsNoMarkupInMarkdown) {
  const Document hostile = {Paragraph{"<img src=x>"}, Grid{{{"k", true}}, {{"f<float>"}}, ""}};
  EXPECT_EQ(document_markdown(hostile), "\\<img src=x>\n\n| k |\n|---|\n| f\\<float> |\n\n");
}

TEST(Document, LongCellsAreCut) {
  Grid grid{{{"k", true, 5}}, {{"abcdefgh"}}, ""};
  EXPECT_EQ(document_text({grid}, false), "  k\n  abcde...\n");
}

TEST(LimitRows, CountsWhatItLeavesOut) {
  Grid grid{{{"k"}}, {{"1"}, {"2"}, {"3"}}, ""};
  limit_rows(grid, -1);
  EXPECT_EQ(grid.rows.size(), 3U);
  limit_rows(grid, 3);
  EXPECT_EQ(grid.more, "");
  limit_rows(grid, 1);
  EXPECT_EQ(grid.rows.size(), 1U);
  EXPECT_EQ(grid.more, "and 2 more");
}

// --- Tables with keys ----------------------------------------------------------------------------

Table some_table() {
  Table table{.key = "rows", .has_text_header = true};
  table.columns = {{.key = "name", .header = "name", .width = 6},
                   {.header = "n", .width = 4, .is_left_aligned = false},
                   {.key = "doc", .header = "", .gap = 2},
                   {.key = "value", .is_for_people = false}};
  table.rows = {{{"a", "a", "`a|b`"}, {"1"}, {"first", "first"}, {"", 1.5}},
                {{"longer-name", "longer"}, {"12345"}, {"x\ny", "x\ny"}, {"", Value()}}};
  return table;
}

TEST(Table, AsTextHasTheWidthsOfItsColumns) {
  EXPECT_EQ(document_text({some_table()}, false),
            "name      n  \n"
            "a         1  first\n"
            "longer-name 12345  x\\x0ay\n");
  Table plain = some_table();
  plain.has_text_header = false;
  EXPECT_EQ(document_text({plain}, true),
            "a         1  first\n"
            "longer-name 12345  x\\x0ay\n");
}

TEST(Table, AsMarkdownEndsWithItsLastRow) {
  EXPECT_EQ(document_markdown({some_table()}),
            "| name | n | |\n"
            "|---|---:|---|\n"
            "| `a\\|b` | 1 | first |\n"
            "| longer-name | 12345 | x\\x0ay |\n");
}

TEST(Table, AsJsonHasKeysAndValues) {
  Document document = {Heading{"for people"}, some_table()};
  document.facts = {{"whole", true}, {"count", int64_t{2}}, {"note", "n"}};
  EXPECT_EQ(document_json(document), R"({
  "schema_version": 1,
  "whole": true,
  "count": 2,
  "note": "n",
  "rows": [
    {
      "name": "a",
      "doc": "first",
      "value": 1.5
    },
    {
      "name": "longer",
      "doc": "x\ny",
      "value": null
    }
  ]
}
)");
  document.sorts_keys = true;
  const std::string sorted = document_json(document);
  EXPECT_LT(sorted.find("\"count\""), sorted.find("\"note\""));
  EXPECT_LT(sorted.find("\"rows\""), sorted.find("\"schema_version\""));
  EXPECT_LT(sorted.find("\"doc\""), sorted.find("\"name\""));
}

TEST(Table, AnEmptyOneIsAnEmptyList) {
  Document document = {Table{.key = "rows"}};
  EXPECT_EQ(document_json(document), "{\n  \"schema_version\": 1,\n  \"rows\": []\n}\n");
}

// --- JSON ----------------------------------------------------------------------------------------

TEST(DocumentJson, IsEmptyWhereThereIsNothingForScripts) {
  EXPECT_EQ(document_json(kDocument), "");
  EXPECT_EQ(document_json({}), "");
  Table unnamed = some_table();
  unnamed.key = "";
  EXPECT_EQ(document_json({unnamed}), "");
}

TEST(DocumentJson, IsWhatTheDocumentGivesWhenItIsAskedFor) {
  int calls = 0;
  Document document = {Paragraph{"for people"}, some_table()};
  document.json = [&] {
    ++calls;
    return std::string("[]\n");
  };
  document_text(document, false);
  document_markdown(document);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(document_json(document), "[]\n");
  EXPECT_EQ(calls, 1);
}

TEST(DocumentJson, SurvivesBytesThatAreNoUtf8) {
  Document document;
  document.facts = {{"name", "\xff"}};
  EXPECT_HAS(document_json(document), "\xef\xbf\xbd");
}

// --- Lines that are ready ------------------------------------------------------------------------

TEST(Preformatted, HasLinesForEachForm) {
  const Document document = {Heading{"Title", 3}, Preformatted{"a  b\n", "| a | b |\n"},
                             preformatted("both\n")};
  EXPECT_EQ(document_text(document, false), "Title\na  b\nboth\n");
  EXPECT_EQ(document_markdown(document), "### Title\n\n| a | b |\nboth\n");
}

}  // namespace epilogue::trace::document_test
