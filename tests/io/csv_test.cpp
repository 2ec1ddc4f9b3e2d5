// SPDX-License-Identifier: Apache-2.0
// CSV: RFC 4180's quoting and line ends, numbers, missing values, and every refusal with its line.
#include "epilogue/csv.h"

#include "errors/message_of.h"
#include "io/files.h"
#include "support/test.h"

namespace epilogue::csv_test {

using namespace io_test;

CsvTable parsed(std::string_view text, const CsvOptions& options = {}) {
  return CsvTable::parse(text, "t.csv", options).value();
}

std::string failure_of(std::string_view text, const CsvOptions& options = {}) {
  auto table = CsvTable::parse(text, "t.csv", options);
  return table ? "parsed" : table.failure().message;
}

std::vector<std::string> row_of(const CsvTable& table, int64_t row) {
  std::vector<std::string> cells;
  for (size_t c = 0; c < table.columns().size(); ++c) cells.emplace_back(table.cell(row, c));
  return cells;
}

using Cells = std::vector<std::string>;

TEST(Csv, PlainCellsWithEitherLineEnd) {
  for (const char* text : {"a,b\n1,2\n3,4\n", "a,b\r\n1,2\r\n3,4\r\n", "a,b\n1,2\n3,4"}) {
    const CsvTable t = parsed(text);
    EXPECT_EQ(t.columns(), (Cells{"a", "b"}));
    ASSERT_EQ(t.rows(), 2);
    EXPECT_EQ(row_of(t, 0), (Cells{"1", "2"}));
    EXPECT_EQ(row_of(t, 1), (Cells{"3", "4"}));
  }
}

TEST(Csv, QuotesHoldDelimitersQuotesAndLineBreaks) {
  const CsvTable t =
      parsed("name,note\n\"Doe, J\",\"say \"\"hi\"\"\"\nx,\"two\r\nlines\"\nlast,\n");
  ASSERT_EQ(t.rows(), 3);
  EXPECT_EQ(row_of(t, 0), (Cells{"Doe, J", "say \"hi\""}));
  EXPECT_EQ(row_of(t, 1), (Cells{"x", "two\r\nlines"}));
  EXPECT_EQ(row_of(t, 2), (Cells{"last", ""}));
  EXPECT_EQ(t.line(0), 2);
  EXPECT_EQ(t.line(1), 3);
  EXPECT_EQ(t.line(2), 5);  // the break inside the quotes counts
}

TEST(Csv, CellsThatAreNotUtf8AreLatin1) {
  const CsvTable t = parsed(
      "gr\xf6\xdf"
      "e,b\nZ\xfcrich,Z\xc3\xbcrich\n\xed\xa0\x80,\xf0\x9f\x98\x80\n");
  EXPECT_EQ(t.columns(), (Cells{"gr\xc3\xb6\xc3\x9f"
                                "e",
                                "b"}));
  EXPECT_EQ(t.cell(0, 0), "Z\xc3\xbcrich");
  EXPECT_EQ(t.cell(0, 1), "Z\xc3\xbcrich");
  EXPECT_EQ(t.cell(1, 0), "\xc3\xad\xc2\xa0\xc2\x80");  // half of a surrogate
  EXPECT_EQ(t.cell(1, 1), "\xf0\x9f\x98\x80");
}

TEST(Csv, BlanksCountInsideQuotesOnly) {
  const CsvTable t = parsed("a , b\n 1\t,\" 2 \"\n  \" x\"  ,y\n");
  EXPECT_EQ(t.columns(), (Cells{"a", "b"}));
  EXPECT_EQ(row_of(t, 0), (Cells{"1", " 2 "}));
  EXPECT_EQ(row_of(t, 1), (Cells{" x", "y"}));
}

TEST(Csv, SkipsBlankLinesAndTheByteOrderMark) {
  const CsvTable t = parsed("\xEF\xBB\xBF\n\na,b\n\n1,2\n \n\r\n3,4\n\n");
  EXPECT_EQ(t.columns(), (Cells{"a", "b"}));
  ASSERT_EQ(t.rows(), 2);
  EXPECT_EQ(t.line(0), 5);
  EXPECT_EQ(t.line(1), 8);
}

TEST(Csv, EmptyQuotesAreACellAlsoAlone) {
  const CsvTable t = parsed("a\n\"\"\n1\n");
  ASSERT_EQ(t.rows(), 2);
  EXPECT_EQ(t.cell(0, 0), "");
  EXPECT_TRUE(t.is_missing(0, 0));
}

TEST(Csv, OtherDelimitersAndNoHeader) {
  const CsvTable t = parsed("1;2,5\n3;4\n", {.delimiter = ';', .header = false});
  EXPECT_EQ(t.columns(), (Cells{"column1", "column2"}));
  ASSERT_EQ(t.rows(), 2);
  EXPECT_EQ(row_of(t, 0), (Cells{"1", "2,5"}));
  EXPECT_EQ(row_of(parsed("a\tb\n1\t\n", {.delimiter = '\t'}), 0), (Cells{"1", ""}));
  EXPECT_THROW(parsed("a b", {.delimiter = ' '}), Error);
}

TEST(Csv, UnnamedColumnsGetNumbers) {
  EXPECT_EQ(parsed(",b,\n1,2,3\n").columns(), (Cells{"column1", "b", "column3"}));
  EXPECT_EQ(parsed("a,b\n1,2\n").find("b"), 1U);
  EXPECT_FALSE(parsed("a,b\n1,2\n").find("B").has_value());
}

TEST(Csv, Numbers) {
  const CsvTable t = parsed("x\n1\n-2.5e3\n+.5\n1e-3\n");
  const double expected[] = {1, -2500, 0.5, 0.001};
  for (int64_t row = 0; row < 4; ++row)
    EXPECT_EQ(t.number(row, 0).value().value(), expected[row]) << row;
}

TEST(Csv, MissingValuesAreNoNumbers) {
  const CsvTable t = parsed("x,y\n,1\nNA,1\nN/A,1\nNaN,1\nnan,1\nnull,1\nNULL,1\nNone,1\n?,1\n");
  ASSERT_EQ(t.rows(), 9);
  for (int64_t row = 0; row < 9; ++row) {
    EXPECT_TRUE(t.is_missing(row, 0)) << row;
    EXPECT_FALSE(t.number(row, 0).value().has_value()) << row;
  }
  EXPECT_FALSE(t.is_missing(0, 1));
}

TEST(Csv, RefusesTextWhereANumberIsAsked) {
  for (const char* bad :
       {"one", "1.5x", "0x10", "1 2", "inf", "-inf", "1e999", "+-1", "--1", "+"}) {
    const CsvTable t = parsed(std::string("n,size\n1,2\n1,") + bad + "\n");
    auto number = t.number(1, 1);
    ASSERT_FALSE(number.ok()) << bad;
    EXPECT_EQ(number.failure().code, FailureCode::csv_number);
    EXPECT_EQ(
        number.failure().message,
        std::string("t.csv: CsvNumber: line 3, column 'size': expected a finite number, got '") +
            bad + "'");
  }
}

TEST(Csv, RefusalsNameTheLine) {
  EXPECT_EQ(failure_of("a,b\n1,2\n3\n"), "t.csv: CsvWidth: line 3: expected 2 cells, got 1");
  EXPECT_EQ(failure_of("a,b\n1,2,3\n"), "t.csv: CsvWidth: line 2: expected 2 cells, got 3");
  EXPECT_EQ(failure_of("a,b,a\n1,2,3\n"),
            "t.csv: CsvHeader: line 1: expected a name per column, got 'a' twice");
  EXPECT_EQ(failure_of("a,b\n1,\"2\n3,4\n"),
            "t.csv: CsvQuote: line 2: expected an end of the quotes, got the end of the file");
  EXPECT_EQ(
      failure_of("a,b\n1,\"2\"x\n"),
      "t.csv: CsvQuote: line 2: expected the end of the cell after its closing quote, got 'x'");
  EXPECT_EQ(
      failure_of("a,b\n1,2\"3\n"),
      "t.csv: CsvQuote: line 2: expected quotes around a whole cell, got one inside of '2\"3'");
  EXPECT_EQ(failure_of(std::string_view("a,b\n1,\0\n", 8)),
            "t.csv: CsvBinary: line 2: expected text, got a NUL byte");
  EXPECT_EQ(failure_of(std::string_view("a,b\n1,\"\0\"\n", 10)),
            "t.csv: CsvBinary: line 2: expected text, got a NUL byte");
}

TEST(Csv, RefusesFilesWithoutRows) {
  EXPECT_EQ(failure_of(""), "t.csv: CsvEmpty: expected a header and at least one row, got no row");
  EXPECT_EQ(failure_of("a,b\n"),
            "t.csv: CsvEmpty: expected a header and at least one row, got no row");
  EXPECT_EQ(failure_of("\n\n", {.header = false}),
            "t.csv: CsvEmpty: expected at least one row, got none");
}

TEST(Csv, ReadsFiles) {
  const TempFolder folder;
  write_bytes(folder / "x.csv", "a\n7\n");
  EXPECT_EQ(CsvTable::read(folder / "x.csv").value().number(0, 0).value(), 7);
  auto missing = CsvTable::read(folder / "none.csv");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.failure().code, FailureCode::file_error);
}

// Any prefix of a file parses or is refused; it never reads beyond it (ASan sees that).
TEST(Csv, EveryTruncationIsHandled) {
  const std::string text =
      "\xEF\xBB\xBF"
      "a,\"b\"\r\n\"1\"\"x\" ,2\r\n\r\n,\"\n\"\r\n";
  int refused = 0;
  for (size_t n = 0; n <= text.size(); ++n) {
    const std::string part(text, 0, n);
    auto table = CsvTable::parse(part, "t.csv");
    if (!table) {
      EXPECT_TRUE(table.failure().message.starts_with("t.csv: ")) << table.failure().message;
      ++refused;
    }
  }
  EXPECT_GT(refused, 0) << "some end inside quotes";
  EXPECT_TRUE(CsvTable::parse(text, "t.csv").ok());
}

TEST(Csv, RowsAndColumnsThatAreNotThere) {
  const CsvTable t = parsed("a,b\n1,2\n3,4\n");
  const std::string start = "[CsvTable] expected a row below 2 and a column below 2, got ";
  EXPECT_ERROR(t.cell(2, 0), start + "2 and 0");
  EXPECT_ERROR(t.is_missing(-1, 0), start + "-1 and 0");
  EXPECT_ERROR((void)t.number(0, 2).ok(), start + "0 and 2");
  EXPECT_ERROR(CsvTable{}.cell(0, 0),
               "[CsvTable] expected a row below 0 and a column below 0, got 0 and 0");
  EXPECT_ERROR(t.line(9), "[CsvTable] expected a row below 2, got 9");
}

TEST(Csv, ChunksAreTheWholeTable) {
  const TempFolder folder;
  const std::string path = folder.path() + "/t.csv";
  const std::string text = "a,b\n1,x\n\n2,\"y\nz\"\r\n3,w\n4,v\n5,u";
  write_bytes(path, text);
  for (const bool header : {true, false}) {
    const CsvTable whole = CsvTable::read(path, {.header = header}).value();
    for (const int64_t rows : {1, 2, 3, 100}) {
      CsvChunks chunks = CsvChunks::open(path, {.header = header}).value();
      EXPECT_EQ(chunks.columns(), whole.columns());
      int64_t row = 0;
      while (const auto chunk = chunks.next(rows).value()) {
        EXPECT_LE(chunk->rows(), rows);
        for (int64_t r = 0; r < chunk->rows(); ++r, ++row) {
          EXPECT_EQ(row_of(*chunk, r), row_of(whole, row));
          EXPECT_EQ(chunk->line(r), whole.line(row));
        }
      }
      EXPECT_EQ(row, whole.rows());
      EXPECT_EQ(chunks.bytes_read(), chunks.bytes());
      EXPECT_FALSE(chunks.next(rows).value());
    }
  }
}

TEST(Csv, ChunksRefuseWhatATableRefuses) {
  const TempFolder folder;
  const std::string path = folder.path() + "/t.csv";
  write_bytes(path, "a,b\n1,2\n3\n");
  CsvChunks chunks = CsvChunks::open(path).value();
  EXPECT_EQ(chunks.next(10).failure().message,
            path + ": CsvWidth: line 3: expected 2 cells, got 1");
  EXPECT_ERROR((void)chunks.next(0), "[CsvChunks] expected one row or more, got 0");
  write_bytes(path, "");
  EXPECT_EQ(CsvChunks::open(path).failure().code, FailureCode::csv_empty);
  write_bytes(path, "a,b\n");
  EXPECT_FALSE(CsvChunks::open(path).value().next(1).value());
  write_bytes(path, "a,a\n");
  EXPECT_EQ(CsvChunks::open(path).failure().code, FailureCode::csv_header);
  EXPECT_EQ(CsvChunks::open(folder.path() + "/none.csv").failure().code, FailureCode::file_error);
}

}  // namespace epilogue::csv_test
