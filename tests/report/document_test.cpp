// SPDX-License-Identifier: Apache-2.0
#include "report/document.h"

#include <gtest/gtest.h>

namespace epilogue::trace::document_test {
namespace {

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

}  // namespace
}  // namespace epilogue::trace::document_test
