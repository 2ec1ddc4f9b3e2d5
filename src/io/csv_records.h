// SPDX-License-Identifier: Apache-2.0
// The grammar of RFC 4180, one record at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"

namespace epilogue::io {

// Walks over a text. Cells come in a buffer that the next record overwrites.
class CsvRecords {
 public:
  // `first_line`: of the text in its file.
  CsvRecords(std::string_view text, std::string_view file_name, char delimiter,
             int64_t first_line = 1);

  // Reads the next record that is not a blank line; false at the end.
  Result<bool> next();
  size_t size() const { return ends_.size(); }
  std::string_view cell(size_t i) const;
  int64_t line() const { return first_line_; }  // where the record begins, from 1
  size_t bytes_read() const { return at_; }

 private:
  void read_plain_cell();
  std::optional<Failure> read_quoted_cell();
  std::optional<Failure> check_plain(std::string_view cell) const;
  // Past a delimiter (true) or the end of the line (false).
  bool read_separator();
  bool at_line_end() const { return at_ >= text_.size() || text_[at_] == '\n' || is_crlf(); }
  bool is_crlf() const { return text_.substr(at_, 2) == "\r\n"; }
  Failure failure(FailureCode code, int64_t line, std::string_view detail) const;

  std::string_view text_;
  std::string_view file_name_;
  char delimiter_;
  size_t at_ = 0;
  int64_t line_ = 1;
  int64_t first_line_ = 1;
  std::string cells_;
  std::vector<size_t> ends_;
};

// A cell as a record holds it: quoted where it must be.
std::string csv_cell(std::string_view text);
// A record of such cells, without a line end, and back. A text that is no record is one cell.
std::string csv_line(const std::vector<std::string>& cells);
std::vector<std::string> csv_cells(std::string_view line);

// Without blanks at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace epilogue::io
