// SPDX-License-Identifier: Apache-2.0
// epilogue memory SNAPSHOT.pickle: who held the device's memory, and what to do about it.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct MemoryFlags {
  trace::TraceInput input;
  std::string against;
  trace::MemoryAnswerOptions options;
  Format format = Format::text;
};

int run_memory_command(const MemoryFlags& o) {
  trace::MemoryAnswerOptions options = o.options;
  if (!o.against.empty()) options.against = trace::TraceInput{.path = o.against};
  const Result<trace::Answer> answer = trace::memory_answer(o.input, options, terminal_hooks());
  print(answer.value(), o.format);
  return kExitFine;
}

}  // namespace

void add_memory_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<MemoryFlags>();
  CLI::App* memory =
      app.add_subcommand("memory", "Says who held a device's memory, from a memory snapshot");
  memory
      ->add_option("SNAPSHOT", o->input.path,
                   "a pickle of torch.cuda.memory._dump_snapshot(), plain or\n"
                   ".gz; -: stdin. It is read as data: nothing in it runs")
      ->required()
      ->option_text(" ");
  memory->add_option("--against", o->against, "an earlier snapshot to compare with")
      ->option_text("B");
  memory
      ->add_option("--device-index", o->options.device,
                   "this device alone; -1: pinned memory of the host")
      ->check(whole_number(-1))
      ->option_text("N");
  memory
      ->add_option("--page", o->options.page,
                   "also write one HTML page: tables, curve, map of addresses")
      ->check(path_name())
      ->option_text("FILE.html");
  memory->add_option("--top", o->options.top, "rows of each list; -1: all")
      ->check(whole_number(-1))
      ->option_text("N [10]");
  add_format(*memory, o->format);
  memory->footer("Example: epilogue memory snapshot.pickle --page memory.html");
  memory->callback([o, &run] { run = [o] { return run_memory_command(*o); }; });
}

}  // namespace epilogue::tool
