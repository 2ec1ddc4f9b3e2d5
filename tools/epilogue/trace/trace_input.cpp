// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/trace/trace_input.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/progress.h"
#include "epilogue/trace/file.h"
#include "tools/epilogue/arguments.h"

namespace epilogue::tool {
namespace {

Result<trace::Trace> read_input(const std::string& path, bool python_functions) {
  std::unique_ptr<ProgressBar> bar;
  trace::ReadOptions options;
  options.python_functions = python_functions;
  options.progress = [&](int64_t done, int64_t total) {
    if (total == 0) return;  // a pipe: no share to show
    if (bar == nullptr) bar = std::make_unique<ProgressBar>("reading", total);
    bar->update(done);
  };
  Result<trace::Trace> trace = trace::read_trace(path, options);
  if (bar != nullptr) bar->finish();
  return trace;
}

// "PATH: skipped 3 of 210 events: bad-syntax (2), truncated (1); the first at byte 204", or "".
std::string skip_warning(const trace::ImportReport& report) {
  if (report.skipped_events == 0)
    return report.is_truncated ? report.path + ": the file ends early; this is what came before"
                               : "";
  std::string reasons;
  int64_t first = report.skips.front().first_offset;
  for (const trace::ImportNote& note : report.skips) {
    reasons += fmt::format("{}{} ({})", reasons.empty() ? "" : ", ", note.id, note.count);
    first = std::min(first, note.first_offset);
  }
  return fmt::format("{}: skipped {} of {} events: {}; the first at byte {}", report.path,
                     report.skipped_events, report.events + report.skipped_events, reasons, first);
}

void warn_of(const trace::ImportReport& report) {
  if (const std::string warning = skip_warning(report); !warning.empty()) warn(warning);
  for (const trace::ImportNote& note : report.repairs)
    if (note.is_doubtful)
      warn(fmt::format("{}: {} ({}at byte {})", report.path, note.detail,
                       note.count == 1 ? "" : fmt::format("{} in all, the first ", note.count),
                       note.first_offset));
}

}  // namespace

void warn(const std::string& text) { fmt::print(stderr, "epilogue: warning: {}\n", text); }

void add_trace_part(CLI::App& app, TracePart& part) {
  app.add_option("--step", part.step,
                 "only ProfilerStep#N: what it launched, and what ran during it")
      ->check(whole_number(0))
      ->option_text("N");
  app.add_option("--from", part.from_ms, "only what happens at MS milliseconds or later")
      ->check(number_from(0))
      ->option_text("MS");
  app.add_option("--to", part.to_ms, "only what happens before MS milliseconds")
      ->check(number_from(0))
      ->option_text("MS");
}

Result<trace::Trace> try_load_trace(const std::string& path, const TracePart& part,
                                    bool python_functions) {
  Result<trace::Trace> trace = read_input(path, python_functions);
  if (!trace) return trace;
  warn_of(trace.value().import);
  if (part.step) trace = trace::select_step(std::move(trace).value(), *part.step);
  if (trace && (part.from_ms || part.to_ms))
    trace = trace::select_range(std::move(trace).value(), part.from_ms, part.to_ms);
  return trace;
}

trace::Trace load_trace(const std::string& path, const TracePart& part, bool python_functions) {
  return try_load_trace(path, part, python_functions).value();
}

}  // namespace epilogue::tool
