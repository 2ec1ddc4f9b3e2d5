// SPDX-License-Identifier: Apache-2.0
// Reads Chrome/Kineto JSON traces: plain or gzip, an object or a bare array, of any PyTorch since
// 2021, NVIDIA, AMD, CPU, or our own. What is broken is mended or skipped event by event, and said.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "epilogue/base/result.h"
#include "epilogue/trace/event.h"

namespace epilogue::trace {

struct ReadOptions {
  // Python frames are up to 91 % of a file: they are skipped unless asked for.
  bool python_functions = false;
  int threads = 0;  // 0: as many as the machine has
  // Called now and then from one thread with the bytes of the file consumed so far and in all (0:
  // not known, a pipe).
  std::function<void(int64_t done, int64_t total)> progress = {};
};

// Reads a file, or stdin where `path` is "-". Times are exact: decimal text to int64 ns, never
// through a double. Fails, with one line that names the file, where there is nothing to use: the
// file cannot be read (cannot_open), is empty (empty), is no JSON (not_json), or is JSON but no
// Chrome trace ("NotATrace": the message says what it looks like). Everything else is a trace;
// Trace::import says what was skipped. Uses threads of its own; safe to call from several.
Result<Trace> read_trace(const std::string& path, const ReadOptions& options = {});

// The same over text in memory (not compressed). `name` stands for the path in messages.
Result<Trace> read_trace_text(std::string_view text, std::string_view name,
                              const ReadOptions& options = {});

}  // namespace epilogue::trace
