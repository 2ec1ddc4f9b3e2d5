// SPDX-License-Identifier: Apache-2.0
// A CSV file in parts of whole records, which several threads parse side by side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "epilogue/csv.h"

namespace epilogue::io {

class CsvParts {
 public:
  // Parts are of about so many bytes, whatever the number of threads.
  static constexpr int64_t kPartBytes = 1 << 20;

  // Reads the file once, for where the parts begin. Codes: those of CsvChunks::open(), and those of
  // the first row.
  static Result<CsvParts> open(const std::string& path, const CsvOptions& options,
                               int64_t part_bytes = kPartBytes);

  const std::string& name() const { return name_; }
  char delimiter() const { return options_.delimiter; }
  const std::vector<std::string>& columns() const { return columns_; }
  size_t count() const { return parts_.size(); }
  int64_t bytes() const { return file_.size(); }
  int64_t end(size_t part) const;  // its last byte in the file, and one

  // The rows of a part, perhaps none. The failure of the first bad part is the one that
  // CsvTable::read() would say; parts behind it may begin inside of a cell. Failures are
  // CsvTable::read()'s, but a part without rows is none. Thread-safe.
  Result<CsvTable> part(size_t i) const;

 private:
  struct Part {
    int64_t begin;
    int64_t first_line;
  };
  CsvParts(ReadFile file, std::string name, const CsvOptions& options)
      : file_(std::move(file)), name_(std::move(name)), options_(options) {}
  Status find_parts(int64_t part_bytes);
  Status read_header();

  ReadFile file_;
  std::string name_;
  CsvOptions options_;
  std::vector<std::string> columns_;
  std::vector<Part> parts_;
};

}  // namespace epilogue::io
