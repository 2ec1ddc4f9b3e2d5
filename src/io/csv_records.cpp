// SPDX-License-Identifier: Apache-2.0
#include "io/csv_records.h"

#include <fmt/format.h>

#include "base/text/csv_quotes.h"
#include "io/message.h"

namespace epilogue::io {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string csv_cell(std::string_view text) {
  if (text.find_first_of("\",\r\n ") == std::string_view::npos && !text.empty())
    return std::string(text);
  return in_csv_quotes(text);
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += (line.empty() ? "" : ",") + csv_cell(cell);
  return line;
}

std::vector<std::string> csv_cells(std::string_view line) {
  CsvRecords record(line, "", ',');
  const auto more = record.next();
  if (!more) return {std::string(line)};
  std::vector<std::string> cells;
  for (size_t i = 0; more.value() && i < record.size(); ++i) cells.emplace_back(record.cell(i));
  return cells;
}

CsvRecords::CsvRecords(std::string_view text, std::string_view file_name, char delimiter,
                       int64_t first_line)
    : text_(text),
      file_name_(file_name),
      delimiter_(delimiter),
      line_(first_line),
      first_line_(first_line) {
  if (first_line == 1 && text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
}

Failure CsvRecords::failure(FailureCode code, int64_t line, std::string_view detail) const {
  return io_failure(file_name_, code, fmt::format("line {}: {}", line, detail));
}

std::string_view CsvRecords::cell(size_t i) const {
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(cells_).substr(begin, ends_[i] - begin);
}

std::optional<Failure> CsvRecords::check_plain(std::string_view cell) const {
  if (cell.find('\0') != std::string_view::npos)
    return failure(FailureCode::csv_binary, line_, "expected text, got a NUL byte");
  if (cell.find('"') != std::string_view::npos)
    return failure(FailureCode::csv_quote, line_,
                   "expected quotes around a whole cell, got one inside of " + in_quotes(cell));
  return {};
}

void CsvRecords::read_plain_cell() {
  const size_t begin = at_;
  // A carriage return alone is content.
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == delimiter_ || c == '\n' || (c == '\r' && is_crlf())) break;
  }
  cells_.append(trimmed(text_.substr(begin, at_ - begin)));
}

std::optional<Failure> CsvRecords::read_quoted_cell() {
  const int64_t opened = line_;
  for (++at_; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '"') {
      if (text_.substr(at_, 2) != "\"\"") break;
      ++at_;
    } else if (c == '\n') {
      ++line_;
    } else if (c == '\0') {
      return failure(FailureCode::csv_binary, line_, "expected text, got a NUL byte");
    }
    cells_.push_back(c);
  }
  if (at_ >= text_.size())
    return failure(FailureCode::csv_quote, opened,
                   "expected an end of the quotes, got the end of the file");
  ++at_;
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  if (at_line_end() || text_[at_] == delimiter_) return {};
  return failure(FailureCode::csv_quote, line_,
                 "expected the end of the cell after its closing quote, got " +
                     in_quotes(text_.substr(at_, 1)));
}

bool CsvRecords::read_separator() {
  if (!at_line_end()) {
    ++at_;
    return true;
  }
  if (at_ < text_.size()) {
    at_ += is_crlf() ? 2 : 1;
    ++line_;
  }
  return false;
}

Result<bool> CsvRecords::next() {
  while (at_ < text_.size()) {
    first_line_ = line_;
    cells_.clear();
    ends_.clear();
    bool quoted = false;
    do {
      const size_t content = text_.find_first_not_of(' ', at_);
      if (content != std::string_view::npos && text_[content] == '"') {
        at_ = content;
        quoted = true;
        if (auto f = read_quoted_cell()) return *f;
      } else {
        const size_t begin = cells_.size();
        read_plain_cell();
        if (auto f = check_plain(std::string_view(cells_).substr(begin))) return *f;
      }
      ends_.push_back(cells_.size());
    } while (read_separator());
    if (quoted || ends_.size() > 1 || !cells_.empty()) return true;
  }
  return false;
}

}  // namespace epilogue::io
