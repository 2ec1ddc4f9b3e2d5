// SPDX-License-Identifier: Apache-2.0
#include "train/table_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/text/nearest.h"
#include "io/csv_records.h"
#include "io/csv_state.h"
#include "io/message.h"

namespace epilogue::train {

std::optional<size_t> TableSource::find(std::string_view column) const {
  const auto found = std::find(columns.begin(), columns.end(), column);
  if (found == columns.end()) return {};
  return static_cast<size_t>(found - columns.begin());
}

Failure source_failure(const TableSource& source, FailureCode code, std::string_view detail) {
  return io::io_failure(source.name, code, detail);
}

Status for_each_part(const TableSource& source,
                     FunctionRef<Status(size_t part, const CsvTable& rows)> body) {
  std::vector<Status> results(source.parts, ok_status());
  std::atomic<size_t> first_failed = source.parts;
  parallel_blocks(static_cast<int64_t>(source.parts), [&](int64_t block) {
    const auto part = static_cast<size_t>(block);
    // Parts behind a bad one may be cut inside of a cell.
    if (part > first_failed.load(std::memory_order_relaxed)) return;
    results[part] = source.with_part(part, [&](const CsvTable& rows) { return body(part, rows); });
    if (!results[part]) {
      size_t known = first_failed;
      while (part < known && !first_failed.compare_exchange_weak(known, part)) {
      }
    }
    if (source.done) source.done(part);
  });
  const size_t failed = first_failed;
  return failed == source.parts ? ok_status() : results[failed];
}

Result<size_t> named_column(const TableSource& source, const std::string& name) {
  if (const auto found = source.find(name)) return *found;
  constexpr size_t kShown = 20;
  std::string known;
  for (size_t i = 0; i < std::min(source.columns.size(), kShown); ++i)
    known += (i == 0 ? "" : ", ") + source.columns[i];
  if (source.columns.size() > kShown) known += ", ...";
  return source_failure(source, FailureCode::table_column,
                        fmt::format("expected one of the columns {}; got '{}'{}{}", known, name,
                                    did_you_mean(nearest(name, source.columns)),
                                    io::delimiter_hint(source.columns, source.delimiter)));
}

Result<std::vector<size_t>> named_columns(const TableSource& source, const std::string& names) {
  if (const auto whole = source.find(names)) return std::vector<size_t>{*whole};
  std::vector<size_t> columns;
  for (const std::string& name : io::csv_cells(names)) {
    if (name.empty()) continue;
    auto column = named_column(source, name);
    if (!column) return column.failure();
    columns.push_back(column.value());
  }
  return columns;
}

}  // namespace epilogue::train
