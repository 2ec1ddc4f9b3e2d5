// SPDX-License-Identifier: Apache-2.0
#include "io/csv_parts.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "io/csv_state.h"
#include "io/message.h"

namespace epilogue::io {
namespace {

constexpr int64_t kBlockBytes = 1 << 22;

}  // namespace

// A record ends with a line end outside of quotes. Quotes inside a quoted cell are doubled, so that
// an even number of them came before such an end.
Status CsvParts::find_parts(int64_t part_bytes) {
  Part part{0, 1};
  parts_.push_back(part);
  int64_t line = 1;
  bool quoted = false;
  for (int64_t begin = 0; begin < file_.size(); begin += kBlockBytes) {
    const auto block = file_.read(begin, std::min(begin + kBlockBytes, file_.size()));
    if (!block) return block.failure();
    const std::string_view text = block.value();
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '"') quoted = !quoted;
      if (text[i] != '\n') continue;
      ++line;
      const int64_t next = begin + static_cast<int64_t>(i) + 1;
      if (quoted || next - part.begin < part_bytes || next == file_.size()) continue;
      part = {next, line};
      parts_.push_back(part);
    }
  }
  return ok_status();
}

Status CsvParts::read_header() {
  const auto text = file_.read(0, end(0));
  if (!text) return text.failure();
  CsvChunks::State state(text.value(), name_, options_.delimiter);
  if (auto s = state.begin(options_.header); !s) return s;
  if (state.columns.empty())
    return io_failure(name_, FailureCode::csv_empty, "expected a table, got an empty file");
  columns_ = std::move(state.columns);
  return ok_status();
}

Result<CsvParts> CsvParts::open(const std::string& path, const CsvOptions& options,
                                int64_t part_bytes) {
  require_delimiter(options.delimiter);
  auto file = ReadFile::open(path);
  if (!file) return file.failure();
  CsvParts parts(std::move(file).value(), path, options);
  if (auto s = parts.find_parts(part_bytes); !s) return s.failure();
  if (auto s = parts.read_header(); !s) return s.failure();
  return parts;
}

int64_t CsvParts::end(size_t part) const {
  return part + 1 < parts_.size() ? parts_[part + 1].begin : file_.size();
}

Result<CsvTable> CsvParts::part(size_t i) const {
  const auto text = file_.read(parts_[i].begin, end(i));
  if (!text) return text.failure();
  CsvChunks::State state(text.value(), name_, options_.delimiter, parts_[i].first_line);
  if (auto s = i == 0 ? state.begin(options_.header) : state.step(); !s) return s.failure();
  state.columns = columns_;
  return state.take(std::numeric_limits<int64_t>::max());
}

}  // namespace epilogue::io
