// SPDX-License-Identifier: Apache-2.0
// epilogue explain TRACE|DIR: the findings of one trace, or of the ranks of one run.
#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <string>
#include <utility>

#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct ExplainFlags {
  trace::TraceInput input;
  trace::ExplainAnswerOptions answer;
  std::string shard;  // "3/64"; "": no part
  std::string parts = "parts";
  Format format = Format::text;
};

// "3/64" -> 3 and 64; 0 and 0 for other texts.
std::pair<int64_t, int64_t> shard_of(const std::string& text) {
  std::pair<int64_t, int64_t> shard;
  const char* const end = text.data() + text.size();
  const auto [slash, first_error] = std::from_chars(text.data(), end, shard.first);
  if (first_error != std::errc() || slash == end || *slash != '/') return {};
  const auto [stop, second_error] = std::from_chars(slash + 1, end, shard.second);
  const bool is_fine =
      second_error == std::errc() && stop == end && shard.first >= 1 && shard.first <= shard.second;
  return is_fine ? shard : std::pair<int64_t, int64_t>{};
}

const CLI::Validator& shard_value() {
  static const CLI::Validator kValidator(
      [](const std::string& text) {
        if (shard_of(text).second > 0) return std::string();
        return "expected a part such as 3/64, from 1/64 to 64/64, got '" + text + "'";
      },
      "");
  return kValidator;
}

int run_shard(const ExplainFlags& o) {
  if (o.answer.capture)
    throw Error("[--shard] expected no --capture beside it: of ranks none is used");
  if (!o.answer.cpu.name.empty())
    throw Error("[--shard] expected no --cpu beside it: of ranks none is used");
  const auto [index, count] = shard_of(o.shard);
  print(
      trace::shard_answer(
          o.input, {.index = index, .count = count, .folder = o.parts, .modules = o.answer.modules},
          terminal_hooks())
          .value(),
      o.format);
  return kExitFine;
}

int run_explain_command(const ExplainFlags& o) {
  if (!o.shard.empty()) return run_shard(o);
  print(trace::explain_answer(o.input, o.answer, terminal_hooks()).value(), o.format);
  return kExitFine;
}

}  // namespace

void add_explain_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<ExplainFlags>();
  CLI::App* explain =
      app.add_subcommand("explain", "Says what a trace means, with evidence and savings");
  explain
      ->add_option("TRACE|DIR", o->input.path,
                   "a trace: .json, .json.gz or .pftrace of PyTorch's profiler,\n"
                   ".sqlite of Nsight Systems; -: stdin; or a folder\n"
                   "with one trace for each rank of a run")
      ->required()
      ->option_text(" ");
  explain->add_option("--top", o->answer.top, "rows of each list; -1: all")
      ->check(whole_number(-1))
      ->option_text("N [10]");
  explain->add_flag("--modules", o->answer.modules,
                    "time per nn.Module, if the trace was recorded with_stack (slower)");
  add_capture(*explain, o->answer.capture);
  explain
      ->add_option(
          "--shard", o->shard,
          "of a folder of ranks: read part I of N alone and write what\nepilogue merge joins")
      ->check(shard_value())
      ->option_text("I/N");
  explain
      ->add_option("--parts", o->parts, "folder of the part that --shard writes; made if missing")
      ->check(path_name())
      ->option_text("DIR [parts]");
  add_cpu_choice(*explain, o->answer.cpu);
  add_trace_part(*explain, o->input);
  add_format(*explain, o->format);
  explain->footer("Example: epilogue explain trace.json.gz --top 5");
  explain->callback([o, &run] { run = [o] { return run_explain_command(*o); }; });
}

}  // namespace epilogue::tool
