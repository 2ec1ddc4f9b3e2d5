// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/trace/trace_input.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "base/progress.h"
#include "tools/epilogue/arguments.h"

namespace epilogue::tool {
namespace {

// A bar from the first share that is known until the trace is read.
std::function<void(int64_t, int64_t)> reading_bar() {
  return [bar = std::shared_ptr<ProgressBar>()](int64_t done, int64_t total) mutable {
    if (total == 0) return;  // a pipe: no share to show
    if (bar == nullptr) bar = std::make_shared<ProgressBar>("reading", total);
    bar->update(done);
  };
}

}  // namespace

void warn(const std::string& text) { fmt::print(stderr, "epilogue: warning: {}\n", text); }

trace::AnswerHooks terminal_hooks() { return {.warn = warn, .watch_reading = reading_bar}; }

trace::Trace load_trace(const std::string& path) {
  return trace::load_trace({.path = path}, trace::PythonFrames::counted, terminal_hooks()).value();
}

void add_trace_part(CLI::App& app, trace::TraceInput& input) {
  app.add_option("--step", input.step,
                 "only ProfilerStep#N: what it launched, and what ran during it")
      ->check(whole_number(0))
      ->option_text("N");
  app.add_option("--from", input.from_ms, "only what happens at MS milliseconds or later")
      ->check(number_from(0))
      ->option_text("MS");
  app.add_option("--to", input.to_ms, "only what happens before MS milliseconds")
      ->check(number_from(0))
      ->option_text("MS");
}

void add_capture(CLI::App& app, std::optional<trace::TraceInput>& capture) {
  app.add_option_function<std::string>(
         "--capture", [&capture](const std::string& path) { capture = {.path = path}; },
         "a trace of the capture, or of an eager run of the\nsame model: names kernels of "
         "replayed graphs")
      ->option_text("TRACE");
}

void add_cpu_choice(CLI::App& app, trace::CpuChoice& choice) {
  app.add_option("--cpu", choice.name,
                 "the CPU that recorded a trace without a device: its products are\n"
                 "compared with its peak. A name as in /proc/cpuinfo (\"AMD EPYC\n"
                 "7763\") or a family (\"Zen 3 @ 3.1GHz\") gives an estimate; here:\n"
                 "this machine, as info --measure measured it")
      ->option_text("NAME|here");
  app.add_option("--cpu-threads", choice.threads, "threads that the run had [all of here, else 1]")
      ->check(whole_number(1, std::numeric_limits<int>::max()))
      ->option_text("N");
}

}  // namespace epilogue::tool
