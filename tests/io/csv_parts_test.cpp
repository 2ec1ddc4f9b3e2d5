// SPDX-License-Identifier: Apache-2.0
// Parts of a CSV file: together they are the table, wherever they begin.
#include "io/csv_parts.h"

#include "io/files.h"
#include "support/test.h"

namespace epilogue::io::csv_parts_test {

using namespace io_test;

// Rows of cells with quotes, line breaks, delimiters, either line end and blank lines.
std::string random_table(unsigned seed, int rows) {
  const char* const cells[] = {"1",        "",           "abc",       "\"a,b\"", "\"\"",
                               "\"x\ny\"", "\"q\"\"q\"", "\" \r\n\"", "nan",     "  7 "};
  std::mt19937 draw(seed);
  std::string text =
      "\xEF\xBB\xBF"
      "a,\"b\nc\",d\n";
  for (int row = 0; row < rows; ++row) {
    for (int c = 0; c < 3; ++c) text += std::string(c == 0 ? "" : ",") + cells[draw() % 10];
    text += draw() % 3 == 0 ? "\r\n" : "\n";
    if (draw() % 9 == 0) text += "\n";
  }
  return text;
}

// All rows, with their lines; or the first failure.
std::string content_of(const CsvTable& table) {
  std::string all;
  for (int64_t row = 0; row < table.rows(); ++row) {
    all += std::to_string(table.line(row)) + ":";
    for (size_t c = 0; c < table.columns().size(); ++c)
      all += "[" + std::string(table.cell(row, c)) + "]";
  }
  return all;
}

std::string content_of_parts(const std::string& path, int64_t part_bytes) {
  const auto parts = CsvParts::open(path, {}, part_bytes);
  if (!parts) return parts.failure().message;
  std::string all;
  for (size_t i = 0; i < parts.value().count(); ++i) {
    const auto rows = parts.value().part(i);
    if (!rows) return rows.failure().message;
    EXPECT_EQ(rows.value().columns(), parts.value().columns());
    all += content_of(rows.value());
  }
  return all;
}

TEST(CsvParts, AreTheTableWhereverTheyBegin) {
  const TempFolder folder;
  const std::string path = folder.path() + "/t.csv";
  for (unsigned seed = 0; seed < 20; ++seed) {
    write_bytes(path, random_table(seed, 40));
    const std::string expected = content_of(CsvTable::read(path).value());
    for (const int64_t bytes : {1, 7, 20, 64, 1000, 1 << 20})
      EXPECT_EQ(content_of_parts(path, bytes), expected) << seed << " " << bytes;
  }
}

TEST(CsvParts, EveryTruncationAndStrayQuoteFailsAsTheTableDoes) {
  const TempFolder folder;
  const std::string path = folder.path() + "/t.csv";
  const std::string text = random_table(5, 12);
  for (size_t i = 20; i < text.size(); ++i)
    for (const bool truncates : {true, false}) {
      std::string damaged = text;
      if (truncates) {
        damaged.resize(i);
      } else {
        damaged.insert(i, "\"");
      }
      write_bytes(path, damaged);
      const auto table = CsvTable::read(path);
      // A table without rows is a failure of its own.
      if (!table && table.failure().code == FailureCode::csv_empty) continue;
      EXPECT_EQ(content_of_parts(path, 16),
                table ? content_of(table.value()) : table.failure().message)
          << damaged;
    }
}

TEST(CsvParts, AFileThatBecomesShorterIsNamed) {
  const TempFolder folder;
  const std::string path = folder.path() + "/t.csv";
  write_bytes(path, random_table(1, 100));
  const auto parts = CsvParts::open(path, {}, 100);
  write_bytes(path, "a,b\n");
  const auto rows = parts.value().part(parts.value().count() - 1);
  ASSERT_FALSE(rows.ok());
  EXPECT_HAS(rows.failure().message, "it became shorter than");
  EXPECT_EQ(CsvParts::open(folder.path() + "/none.csv", {}).failure().code,
            FailureCode::file_error);
  write_bytes(path, "");
  EXPECT_EQ(CsvParts::open(path, {}).failure().code, FailureCode::csv_empty);
}

}  // namespace epilogue::io::csv_parts_test
