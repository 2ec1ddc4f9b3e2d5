// SPDX-License-Identifier: Apache-2.0
// The rows of a text, one table at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "epilogue/csv.h"
#include "io/csv_records.h"

namespace epilogue {

// Walks over a text; `record` is one ahead of the tables.
struct CsvChunks::State {
  std::optional<MappedFile> file;  // of open()
  std::string name;
  char delimiter;
  io::CsvRecords record;
  std::vector<std::string> columns;
  bool has_row = false;  // `record` is at a row that no table has yet

  State(std::string_view text, std::string_view file_name, char separator, int64_t first_line = 1)
      : name(file_name), delimiter(separator), record(text, name, separator, first_line) {}

  // The names of the columns. A text without records has none.
  Status begin(bool has_header);
  Status step();
  Result<CsvTable> take(int64_t max_rows);
};

namespace io {

// Throws Error on a delimiter that the grammar needs for other things.
void require_delimiter(char delimiter);

// "; 'a;y' looks like --delimiter ';'" of the name of a table's only column; else "".
std::string delimiter_hint(const std::vector<std::string>& columns, char delimiter);

}  // namespace io
}  // namespace epilogue
