// SPDX-License-Identifier: Apache-2.0
#include "trace/read/unusable.h"

#include <algorithm>
#include <array>
#include <utility>

namespace epilogue::trace {
namespace {

using std::string_view_literals::operator""sv;

// First bytes of what is found beside traces.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kMagics = {{
    {"SQLite format 3"sv, "an SQLite database (an Nsight Systems export?)"},
    {"PK\x03\x04"sv, "a zip archive: unpack it first"},
    {"BZh"sv, "compressed with bzip2: unpack it first"},
    {"\x28\xb5\x2f\xfd"sv, "compressed with zstd: unpack it first"},
    {"\xfd\x37zXZ"sv, "compressed with xz: unpack it first"},
    {"\x0a"sv, "binary: a Perfetto protobuf trace?"},
    {"version https://git-lfs"sv, "a Git LFS pointer: fetch the file itself"},
    {"<"sv, "HTML or XML: a failed download?"},
}};

constexpr size_t kListedKeys = 6;

bool has(const std::vector<std::string>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

Failure not_json(const std::string& path, std::string_view head) {
  // A text may start with a line break; then a Perfetto trace is the wrong guess.
  const size_t first = head.find_first_not_of(" \t\r\n");
  const std::string_view trimmed = first == std::string_view::npos ? head : head.substr(first);
  for (const auto& [magic, what] : kMagics) {
    const bool is_binary = magic.front() == '\x0a';
    if (is_binary && trimmed.find_first_of("\x00\x01\x02\x12"sv) == std::string_view::npos)
      continue;
    if ((is_binary ? head : trimmed).starts_with(magic))
      return {FailureCode::not_json,
              path + ": expected a JSON trace, got something else: " + std::string(what)};
  }
  return {FailureCode::not_json, path + ": expected a JSON trace, got no JSON at all"};
}

Failure no_document(const std::string& path, bool is_truncated) {
  if (is_truncated)
    return {FailureCode::empty,
            path + ": expected a JSON trace, got a compressed file without its data"};
  return {FailureCode::empty, path + ": expected a JSON trace, got an empty file"};
}

Failure not_a_trace(const std::string& path, const std::vector<std::string>& keys) {
  if (has(keys, "traceEvents"))
    return {FailureCode::not_a_trace,
            path + ": expected a Chrome trace, got JSON whose traceEvents is no list of events"};
  const std::string start = path + ": expected a Chrome trace, got JSON without traceEvents";
  if (has(keys, "nodes") && has(keys, "schema"))
    return {FailureCode::not_a_trace,
            start + ": a PyTorch execution trace (ExecutionTraceObserver)?"};
  if (keys.empty()) return {FailureCode::not_a_trace, start};
  std::string list;
  for (size_t i = 0; i < std::min(keys.size(), kListedKeys); ++i)
    list += (i == 0 ? "" : ", ") + keys[i];
  if (keys.size() > kListedKeys) list += ", ...";
  return {FailureCode::not_a_trace, start + ": its keys are " + list};
}

Failure no_events(const std::string& path) {
  return {FailureCode::not_a_trace,
          path + ": expected a Chrome trace, got a JSON array without events"};
}

}  // namespace epilogue::trace
