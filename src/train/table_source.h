// SPDX-License-Identifier: Apache-2.0
// A table in parts, which are read again for each pass over it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "epilogue/csv.h"
#include "epilogue/data.h"

namespace epilogue::train {

struct TableSource {
  std::string name;
  char delimiter = ',';
  std::vector<std::string> columns;
  size_t parts = 0;
  std::function<Status(size_t part, FunctionRef<Status(const CsvTable&)> use)> with_part;
  std::function<void(size_t part)> done = {};  // from any thread

  std::optional<size_t> find(std::string_view column) const;
};

// Runs body(part, rows) for all parts, on several threads. Gives the failure of the first part that
// has one.
Status for_each_part(const TableSource& source,
                     FunctionRef<Status(size_t part, const CsvTable& rows)> body);

Failure source_failure(const TableSource& source, FailureCode code, std::string_view detail);

// The columns that a flag names: the one of this whole name, or those of a CSV record.
Result<std::vector<size_t>> named_columns(const TableSource& source, const std::string& names);
Result<size_t> named_column(const TableSource& source, const std::string& name);

}  // namespace epilogue::train
