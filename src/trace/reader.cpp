// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "epilogue/base/result.h"
#include "epilogue/trace/file.h"
#include "trace/nsys/nsys_reader.h"
#include "trace/perfetto/perfetto_source.h"
#include "trace/read/assembler.h"
#include "trace/read/byte_source.h"
#include "trace/read/pipeline.h"

namespace epilogue::trace {

namespace {

// How much of a file's start not_json() wants to see.
inline constexpr size_t kHeadBytes = 64;

using std::string_view_literals::operator""sv;

// First bytes of what is found beside traces.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kMagics = {{
    {kSqliteMagic, "an SQLite database, which is read from a file alone, and not compressed"},
    {"PK\x03\x04"sv, "a zip archive: unpack it first"},
    {"BZh"sv, "compressed with bzip2: unpack it first"},
    {"\x28\xb5\x2f\xfd"sv, "compressed with zstd: unpack it first"},
    {"\xfd\x37zXZ"sv, "compressed with xz: unpack it first"},
    {"\x0a"sv, "binary, and no trace of Perfetto"},
    {"version https://git-lfs"sv, "a Git LFS pointer: fetch the file itself"},
    {"<"sv, "HTML or XML: a failed download?"},
}};

constexpr size_t kListedKeys = 6;

bool has(const std::vector<std::string>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

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

// `keys`: the members of the top-level object.
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

// A JSON array whose elements are no events.
Failure no_events(const std::string& path) {
  return {FailureCode::not_a_trace,
          path + ": expected a Chrome trace, got a JSON array without events"};
}

size_t worker_count(int threads) {
  if (threads > 0) return static_cast<size_t>(threads);
  return std::max(1U, std::thread::hardware_concurrency());
}

double share_done(const ByteSource& source) {
  if (source.file_bytes() == 0) return 1;
  return static_cast<double>(source.file_bytes_read()) / static_cast<double>(source.file_bytes());
}

Result<Trace> read_source(ByteSource& source, const std::string& name, const ReadOptions& options) {
  const size_t workers = worker_count(options.threads);
  Assembler assembler(workers, options.python_frames);
  int64_t text_bytes = 0;
  std::string head;  // the first bytes, to say what the file looks like
  {
    WindowPipeline pipeline(source, options.python_frames, workers);
    while (std::unique_ptr<TextWindow> window = pipeline.next()) {
      if (window->failure) return *window->failure;
      if (text_bytes == 0) head = window->text().substr(0, kHeadBytes);
      text_bytes += static_cast<int64_t>(window->size);
      assembler.set_share_done(share_done(source));
      if (!assembler.add(*window)) return not_json(name, head);
      pipeline.recycle(std::move(window));
      if (options.progress) options.progress(source.file_bytes_read(), source.file_bytes());
    }
  }
  if (!assembler.document().has_document()) return no_document(name, source.faults().is_truncated);
  if (!assembler.document().has_list()) return not_a_trace(name, assembler.document().keys());
  Trace trace = assembler.finish(source.faults());
  const bool has_events = trace.import.events > 0 || trace.import.skipped_events == 0;
  if (trace.import.is_bare_array && !has_events) return no_events(name);
  trace.import.path = name;
  trace.import.file_bytes = source.file_bytes_read();
  trace.import.text_bytes = text_bytes;
  trace.import.is_gzip = source.is_gzip();
  return trace;
}

// JSON, or what is translated to it.
Result<Trace> read_any(std::unique_ptr<ByteSource> source, const std::string& name,
                       const ReadOptions& options) {
  Result<std::unique_ptr<ByteSource>> json = translated_source(std::move(source), name);
  if (!json) return json.failure();
  return read_source(*json.value(), name, options);
}

// The first bytes of a regular file; "" of others: a pipe's bytes can be read once.
std::string head_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";
  std::string head(kSqliteMagic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return head;
}

}  // namespace

Result<Trace> read_trace(const std::string& path, const ReadOptions& options) {
  if (path != "-" && head_of(path) == kSqliteMagic) return read_nsys(path, options);
  auto source = open_source(path);
  if (!source) return source.failure();
  return read_any(std::move(source).value(), path == "-" ? "stdin" : path, options);
}

Result<Trace> read_trace_text(std::string_view text, std::string_view name,
                              const ReadOptions& options) {
  if (text.starts_with(kSqliteMagic)) return read_nsys_bytes(text, std::string(name), options);
  return read_any(memory_source(text), std::string(name), options);
}

}  // namespace epilogue::trace
