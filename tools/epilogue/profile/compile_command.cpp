// SPDX-License-Identifier: Apache-2.0
// epilogue compile WORKLOAD: what compile() makes of a workload, and why.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "base/units.h"
#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "explain/render/document.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/profile/machine.h"
#include "tools/epilogue/profile/workload.h"

namespace epilogue::tool {
namespace {

struct CompileFlags {
  WorkloadOptions workload;
  std::string dump;
  Format format = Format::text;
};

std::string dump_text(const Compiled& compiled, const std::string& what) {
  if (what == "graph") return compiled.dump(CompiledDump::graph);
  if (what == "plan") return compiled.dump(CompiledDump::plan);
  if (what == "dot") return compiled.dump(CompiledDump::dot);
  if (what == "passes") {
    std::string text;
    for (const auto& [name, graph] : compiled.dump_passes())
      text += fmt::format("after {}:\n{}\n", name, graph);
    return text;
  }
  throw Error("[--dump] expected graph, plan, dot or passes, got '" + what + "'");
}

std::string compile_json(const CompileFlags& o, const Workload& w, const Compiled& compiled) {
  const CompileStats stats = compiled.stats();
  nlohmann::json out;
  out["schema_version"] = kSchemaVersion;
  out["workload"] = w.description;
  out["kernels"] = stats.kernels;
  out["eager_kernels"] = stats.eager_kernels;
  out["moved_bytes"] = stats.moved_bytes;
  out["eager_moved_bytes"] = stats.eager_moved_bytes;
  out["intermediate_bytes"] = stats.intermediate_bytes;
  out["scratch_bytes"] = stats.scratch_bytes;
  out["compile_ms"] = stats.compile_ms;
  out["notes"] = nlohmann::json::array();
  for (const FusionNote& n : compiled.notes())
    out["notes"].push_back({{"pass", n.pass},
                            {"what", n.what},
                            {"done", n.reason.empty()},
                            {"reason", n.reason},
                            {"bytes_saved", n.bytes_saved},
                            {"launches_saved", n.launches_saved}});
  out["choice"] = compiled.choice();
  auto& candidates = out["candidates"] = nlohmann::json::array();
  for (const PlanCandidate& c : compiled.candidates())
    candidates.push_back({{"name", c.name},
                          {"what", c.what},
                          {"median_us", c.median_us ? nlohmann::json(*c.median_us) : nullptr},
                          {"chosen", c.is_chosen}});
  out["plan"] = compiled.dump(CompiledDump::plan);
  if (!o.dump.empty()) out["dump"] = dump_text(compiled, o.dump);
  return json_text(out, 2) + "\n";
}

std::string notes_markdown(const Compiled& compiled) {
  const CompileStats stats = compiled.stats();
  std::string text = fmt::format(
      "{} kernels for {} ops; memory traffic {}, eager {}.\n\n"
      "| pass | what | done | saves | launches |\n|---|---|---|---:|---:|\n",
      stats.kernels, stats.eager_kernels, format_bytes(stats.moved_bytes),
      format_bytes(stats.eager_moved_bytes));
  for (const FusionNote& n : compiled.notes())
    text += fmt::format("| {} | {} | {} | {} | {} |\n", n.pass, n.what,
                        n.reason.empty() ? "yes" : "no: " + n.reason, format_bytes(n.bytes_saved),
                        n.launches_saved);
  return text;
}

trace::Document plan_document(const CompileFlags& o, const Workload& w, const Compiled& compiled) {
  trace::Document document;
  if (!o.dump.empty()) {
    document.push_back(trace::preformatted(dump_text(compiled, o.dump)));
  } else {
    document.push_back(trace::Heading{w.description, 3});
    document.push_back(trace::Preformatted{
        compiled.explain() + fmt::format("made in {:.2f} ms, without packing the weights\n",
                                         compiled.stats().compile_ms),
        notes_markdown(compiled)});
  }
  document.json = [&] { return compile_json(o, w, compiled); };
  return document;
}

int run_compile_command(CompileFlags o) {
  o.workload.mode = "compile";
  const Workload w = make_workload(o.workload);
  know_machine();
  Compiled compiled = compile(w.function, compile_options(o.workload));
  std::optional<NoGrad> forward_only;
  if (!o.workload.backward) forward_only.emplace();
  compiled.prepare({&w.input, 1});
  print(plan_document(o, w, compiled), o.format);
  return kExitFine;
}

constexpr const char* kCompileExamples[][3] = {
    {"matmul-add", "torch.add(torch.matmul(x, w), b) on square matrices",
     "epilogue compile matmul-add --size 512 --dump plan"},
    {"linear", "nn.Linear", "epilogue compile linear --batch 64 --dump graph"},
    {"mlp", "gated or plain MLP", "epilogue compile mlp --norm rms --residual"}};

}  // namespace

void add_compile_command(CLI::App& app, Body& run) {
  CLI::App* compile_app =
      app.add_subcommand("compile", "Shows what is fused in a workload, and why");
  compile_app->require_subcommand(1);
  compile_app->footer("Example: epilogue compile mlp --batch 8 --dump plan");
  for (const auto& [kind, doc, example] : kCompileExamples) {
    auto options = std::make_shared<CompileFlags>();
    CLI::App* workload = compile_app->add_subcommand(kind, doc);
    add_workload_flags(*workload, kind, options->workload);
    for (const char* flag : {"--mode", "--cold"})
      if (CLI::Option* option = workload->get_option_no_throw(flag))
        workload->remove_option(option);
    workload->add_option("--dump", options->dump, "print the graph, plan, dot or passes instead")
        ->check(choices({"graph", "plan", "dot", "passes"}))
        ->option_text("WHAT");
    workload->add_option("--skip", options->workload.skip_passes, "leave a pass out")
        ->option_text("PASS ...");
    workload->add_flag("--collapse-linears", options->workload.collapse_linears,
                       "weights are frozen: multiply consecutive ones");
    add_tune_flag(*workload, options->workload);
    add_format(*workload, options->format);
    workload->footer(std::string("Example: ") + example);
    workload->callback(
        [options, &run] { run = [options] { return run_compile_command(*options); }; });
  }
}

}  // namespace epilogue::tool
