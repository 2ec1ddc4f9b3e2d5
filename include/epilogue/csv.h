// SPDX-License-Identifier: Apache-2.0
// CSV files as RFC 4180 describes them: cells as text, numbers on demand.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"

#pragma GCC visibility push(default)

namespace epilogue {
namespace io {
class CsvParts;
}

struct CsvOptions {
  char delimiter = ',';
  bool header = true;  // the first record names the columns; else they are column1, column2, ...
};

// A whole file in memory, quotes undone. Read-only and safe to read from several threads. Members
// that take a row or a column throw Error where there is none such.
//
// Records end with LF or CRLF, cells may be quoted (a quote inside doubled, line breaks allowed),
// blank lines and a byte-order mark are skipped. A cell that is not UTF-8 is read as Latin-1.
// Blanks around a cell that is not quoted do not count. An unnamed column is called columnN.
class CsvTable {
 public:
  // Failures read "FILE: CODE: line N: what was expected, what came"; lines count from 1. Codes:
  // FileError, CsvEmpty (no header or no row), CsvBinary (a NUL byte), CsvQuote (unbalanced, or
  // inside a cell that is not quoted), CsvWidth (a record of another length), CsvHeader (a name
  // comes twice).
  static Result<CsvTable> read(const std::string& path, const CsvOptions& options = {});
  // The same of a text; `name` is for messages.
  static Result<CsvTable> parse(std::string_view text, std::string_view name,
                                const CsvOptions& options = {});

  const std::string& name() const { return name_; }
  const std::vector<std::string>& columns() const { return columns_; }
  std::optional<size_t> find(std::string_view column) const;
  int64_t rows() const { return static_cast<int64_t>(lines_.size()); }
  std::string_view cell(int64_t row, size_t column) const;
  int64_t line(int64_t row) const;  // where it begins

  // Empty, "NA", "N/A", "NaN", "nan", "null", "NULL", "None" or "?".
  bool is_missing(int64_t row, size_t column) const;
  // The cell as a number; empty where it is missing. Code CsvNumber: other text, or not finite.
  Result<std::optional<double>> number(int64_t row, size_t column) const;

 private:
  friend class CsvChunks;

  std::string name_;
  std::vector<std::string> columns_;
  std::string text_;            // all cells, one after another
  std::vector<uint64_t> ends_;  // of each cell in text_, row by row
  std::vector<int64_t> lines_;
};

// The rows of a file, some at a time: for tables that memory does not hold. The file must not
// change meanwhile. One thread at a time.
class CsvChunks {
 public:
  // Codes: FileError, and those of the header: CsvEmpty, CsvBinary, CsvQuote, CsvHeader.
  static Result<CsvChunks> open(const std::string& path, const CsvOptions& options = {});
  CsvChunks(CsvChunks&&) noexcept;
  CsvChunks& operator=(CsvChunks&&) noexcept;
  ~CsvChunks();

  const std::vector<std::string>& columns() const;
  // The next rows, at most so many; empty after the last. Failures are CsvTable::read()'s, but a
  // file without rows is none. Throws Error on max_rows < 1.
  Result<std::optional<CsvTable>> next(int64_t max_rows);
  int64_t bytes() const;       // of the file
  int64_t bytes_read() const;  // of them

 private:
  friend class CsvTable;
  friend class io::CsvParts;
  struct State;
  explicit CsvChunks(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace epilogue

#pragma GCC visibility pop
