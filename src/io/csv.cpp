// SPDX-License-Identifier: Apache-2.0
#include "epilogue/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/file.h"
#include "io/csv_cell.h"
#include "io/csv_state.h"
#include "io/message.h"
#include "io/utf8.h"

namespace epilogue {
namespace {

using io::in_quotes;
using io::io_failure;

constexpr std::array<std::string_view, 9> kMissing = {"",     "NA",   "N/A",  "NaN", "nan",
                                                      "null", "NULL", "None", "?"};

bool is_missing_text(std::string_view cell) {
  if (cell.size() > 4) return false;  // the longest has as many letters
  return std::find(kMissing.begin(), kMissing.end(), cell) != kMissing.end();
}

std::string column_name(size_t i) { return "column" + std::to_string(i + 1); }

Result<std::vector<std::string>> header_names(const io::CsvRecords& record, std::string_view file) {
  std::vector<std::string> names;
  for (size_t i = 0; i < record.size(); ++i) {
    std::string& name = names.emplace_back();
    io::append_as_utf8(name, record.cell(i));
    if (name.empty()) name = column_name(i);
    if (std::find(names.begin(), names.end() - 1, names.back()) != names.end() - 1)
      return io_failure(file, FailureCode::csv_header,
                        fmt::format("line {}: expected a name per column, got {} twice",
                                    record.line(), in_quotes(names.back())));
  }
  return names;
}

std::vector<std::string> numbered_names(size_t columns) {
  std::vector<std::string> names;
  for (size_t i = 0; i < columns; ++i) names.push_back(column_name(i));
  return names;
}

std::string_view text_of_file(const MappedFile& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void io::require_delimiter(char delimiter) {
  if (std::string_view("\"\n\r ").find(delimiter) != std::string_view::npos)
    throw Error("[CsvTable] expected a delimiter other than quotes, blanks and line ends, got " +
                in_quotes({&delimiter, 1}));
}

io::CellKind io::cell_kind(std::string_view text, double* value) {
  if (is_missing_text(text)) return CellKind::missing;
  // from_chars knows no plus sign.
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument)
    return CellKind::text;
  if (error != std::errc() || !std::isfinite(number)) return CellKind::not_finite;
  *value = number;
  return CellKind::number;
}

std::string io::delimiter_hint(const std::vector<std::string>& columns, char delimiter) {
  if (columns.size() != 1) return "";
  for (const char c : {';', '\t', '|', ','})
    if (c != delimiter && columns[0].find(c) != std::string::npos)
      return fmt::format("; {} looks like --delimiter {}", in_quotes(columns[0]),
                         c == '\t' ? "tab" : in_quotes({&c, 1}));
  return "";
}

Status CsvChunks::State::begin(bool has_header) {
  auto more = record.next();
  if (!more) return more.failure();
  if (!more.value()) return ok_status();
  if (!has_header) {
    columns = numbered_names(record.size());
    has_row = true;
    return ok_status();
  }
  auto names = header_names(record, name);
  if (!names) return names.failure();
  columns = std::move(names).value();
  return step();
}

Status CsvChunks::State::step() {
  auto more = record.next();
  if (!more) return more.failure();
  has_row = more.value();
  return ok_status();
}

Result<CsvTable> CsvChunks::State::take(int64_t max_rows) {
  CsvTable table;
  table.name_ = name;
  table.columns_ = columns;
  while (has_row && table.rows() < max_rows) {
    if (record.size() != columns.size())
      return io_failure(
          name, FailureCode::csv_width,
          fmt::format("line {}: expected {} cells, got {}{}", record.line(), columns.size(),
                      record.size(), io::delimiter_hint(columns, delimiter)));
    for (size_t i = 0; i < record.size(); ++i) {
      io::append_as_utf8(table.text_, record.cell(i));
      table.ends_.push_back(table.text_.size());
    }
    table.lines_.push_back(record.line());
    if (auto s = step(); !s) return s.failure();
  }
  return table;
}

CsvChunks::CsvChunks(std::unique_ptr<State> state) : state_(std::move(state)) {}
CsvChunks::CsvChunks(CsvChunks&&) noexcept = default;
CsvChunks& CsvChunks::operator=(CsvChunks&&) noexcept = default;
CsvChunks::~CsvChunks() = default;

Result<CsvChunks> CsvChunks::open(const std::string& path, const CsvOptions& options) {
  io::require_delimiter(options.delimiter);
  auto file = MappedFile::open(path);
  if (!file) return file.failure();
  auto state = std::make_unique<State>(text_of_file(file.value()), path, options.delimiter);
  state->file.emplace(std::move(file).value());
  if (auto s = state->begin(options.header); !s) return s.failure();
  if (state->columns.empty())
    return io_failure(path, FailureCode::csv_empty, "expected a table, got an empty file");
  return CsvChunks(std::move(state));
}

const std::vector<std::string>& CsvChunks::columns() const { return state_->columns; }
int64_t CsvChunks::bytes() const {
  return static_cast<int64_t>(text_of_file(*state_->file).size());
}
int64_t CsvChunks::bytes_read() const { return static_cast<int64_t>(state_->record.bytes_read()); }

Result<std::optional<CsvTable>> CsvChunks::next(int64_t max_rows) {
  if (max_rows < 1)
    throw Error(fmt::format("[CsvChunks] expected one row or more, got {}", max_rows));
  if (!state_->has_row) return std::optional<CsvTable>();
  auto table = state_->take(max_rows);
  if (!table) return table.failure();
  return std::optional<CsvTable>(std::move(table).value());
}

Result<CsvTable> CsvTable::read(const std::string& path, const CsvOptions& options) {
  auto file = MappedFile::open(path);
  if (!file) return file.failure();
  return parse(text_of_file(file.value()), path, options);
}

Result<CsvTable> CsvTable::parse(std::string_view text, std::string_view name,
                                 const CsvOptions& options) {
  io::require_delimiter(options.delimiter);
  CsvChunks::State state(text, name, options.delimiter);
  if (auto s = state.begin(options.header); !s) return s.failure();
  auto table = state.take(std::numeric_limits<int64_t>::max());
  if (table && table.value().rows() == 0)
    return io_failure(name, FailureCode::csv_empty,
                      options.header ? "expected a header and at least one row, got no row"
                                     : "expected at least one row, got none");
  return table;
}

std::optional<size_t> CsvTable::find(std::string_view column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  if (found == columns_.end()) return {};
  return static_cast<size_t>(found - columns_.begin());
}

int64_t CsvTable::line(int64_t row) const {
  if (row < 0 || row >= rows())
    throw Error(fmt::format("[CsvTable] expected a row below {}, got {}", rows(), row));
  return lines_[static_cast<size_t>(row)];
}

std::string_view CsvTable::cell(int64_t row, size_t column) const {
  if (row < 0 || row >= rows() || column >= columns_.size())
    throw Error(
        fmt::format("[CsvTable] expected a row below {} and a column below {}, got {} and {}",
                    rows(), columns_.size(), row, column));
  const size_t i = static_cast<size_t>(row) * columns_.size() + column;
  const uint64_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(text_).substr(begin, ends_[i] - begin);
}

bool CsvTable::is_missing(int64_t row, size_t column) const {
  return is_missing_text(cell(row, column));
}

Result<std::optional<double>> CsvTable::number(int64_t row, size_t column) const {
  const std::string_view whole = cell(row, column);
  double value = 0;
  const io::CellKind kind = io::cell_kind(whole, &value);
  if (kind == io::CellKind::missing) return std::optional<double>();
  if (kind == io::CellKind::number) return std::optional<double>(value);
  return io_failure(name_, FailureCode::csv_number,
                    fmt::format("line {}, column {}: expected a finite number, got {}", line(row),
                                in_quotes(columns_[column]), in_quotes(whole)));
}

}  // namespace epilogue
