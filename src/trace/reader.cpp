// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/file.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "trace/read/assembler.h"
#include "trace/read/byte_source.h"
#include "trace/read/pipeline.h"
#include "trace/read/unusable.h"

namespace epilogue::trace {
namespace {

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

}  // namespace

Result<Trace> read_trace(const std::string& path, const ReadOptions& options) {
  auto source = open_source(path);
  if (!source) return source.failure();
  return read_source(*source.value(), path == "-" ? "stdin" : path, options);
}

Result<Trace> read_trace_text(std::string_view text, std::string_view name,
                              const ReadOptions& options) {
  return read_source(*memory_source(text), std::string(name), options);
}

}  // namespace epilogue::trace
