// SPDX-License-Identifier: Apache-2.0
#include "tour_fusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/units.h"
#include "command.h"
#include "epilogue/autograd.h"
#include "epilogue/trace/explain_report.h"
#include "epilogue/trace/html_report.h"
#include "trace_input.h"

namespace epilogue::tool {
namespace {

constexpr int kPartsShown = 6;
constexpr double kNsPerUs = 1000;

struct Loaded {
  explicit Loaded(const ProfileRun& run) : trace(load_trace(run.trace_file)), links(link(trace)) {}
  trace::Trace trace;
  trace::Links links;
};

// What one mode takes per step.
struct ModeCost {
  double step_us = 0;
  double kernels = 0;
  int64_t allocated_bytes = 0;  // within a step, at most
  int64_t kept_bytes = 0;       // from step to step: a plan's values, kernels' scratch memory
  // Beside the result. What a step allocates holds the result, but perhaps not when it is most:
  // eager may need a little more than this.
  int64_t intermediate_bytes(int64_t result_bytes) const {
    return std::max<int64_t>(allocated_bytes - result_bytes, 0) + kept_bytes;
  }
};

ModeCost cost_of(const ProfileRun& run, const CompileStats& plan, bool is_eager) {
  ModeCost c;
  c.step_us = quantity(run, "wall_us_per_step");
  c.kernels = quantity(run, "kernels_per_step");
  c.allocated_bytes = static_cast<int64_t>(quantity(run, "step_peak_bytes"));
  if (!is_eager) c.kept_bytes = plan.intermediate_bytes + plan.scratch_bytes;
  return c;
}

CompileStats plan_stats(const Workload& workload) {
  Compiled compiled = compile(workload.function);
  const NoGrad no_grad;
  compiled.prepare({&workload.input, 1});
  return compiled.stats();
}

// Per step, by the findings on the eager trace; products as compile() runs them.
double predicted_saving_us(const trace::Explanation& eager) {
  double sum = 0;
  for (const trace::Fusion& f : eager.fusions.fusions)
    if (f.kind == trace::FusionKind::kRowChain) sum += f.predicted_saving_us;
  return eager.steps.empty() ? 0 : sum / static_cast<double>(eager.steps.size());
}

std::string change_text(double saved_us) {
  return fmt::format("{} {}", format_duration_ns(std::abs(saved_us) * kNsPerUs),
                     saved_us < 0 ? "more" : "less");
}

std::string write_page(const ProfileRun& before_run, const Loaded& after,
                       const ProfileRun& after_run, const trace::TraceDiff& diff,
                       const std::string& out_dir) {
  const std::string path = out_dir + "/mlp_eager_to_compile.html";
  const std::string file = read_file(after_run.trace_file).value();
  const trace::Explanation explanation = trace::explain(after.trace, after.links);
  write_file(path, trace::html_report({.trace = after.trace,
                                       .links = after.links,
                                       .explanation = explanation,
                                       .title = "MLP: from eager to compiled",
                                       .embedded = trace::embed_trace(file, after_run.trace_file),
                                       .diff = &diff,
                                       .before_path = before_run.trace_file}))
      .value();
  return path;
}

std::string cost_table(const std::array<ModeCost, 3>& costs, int64_t result_bytes) {
  std::string text = fmt::format("{:<8}  {:>8}  {:>12}  {:>8}  {:>14}  {:>8}\n", "mode", "kernels",
                                 "per step", "speed-up", "intermediates", "of eager");
  const ModeCost& eager = costs[0];
  const auto eager_bytes = static_cast<double>(eager.intermediate_bytes(result_bytes));
  for (size_t i = 0; i < costs.size(); ++i) {
    const ModeCost& c = costs[i];
    const auto bytes = static_cast<double>(c.intermediate_bytes(result_bytes));
    text += fmt::format("{:<8}  {:>8g}  {:>12}  {:>7.2f}x  {:>14}  {:>6.1f} %\n", kFusionModes[i],
                        c.kernels, format_duration_ns(c.step_us * kNsPerUs),
                        eager.step_us / c.step_us, format_bytes(bytes), bytes / eager_bytes * 100);
  }
  return text;
}

nlohmann::json costs_json(const std::array<ModeCost, 3>& costs, int64_t result_bytes) {
  auto list = nlohmann::json::array();
  for (size_t i = 0; i < costs.size(); ++i)
    list.push_back({{"mode", kFusionModes[i]},
                    {"kernels_per_step", costs[i].kernels},
                    {"step_us", costs[i].step_us},
                    {"speed_up", costs[0].step_us / costs[i].step_us},
                    {"intermediate_bytes", costs[i].intermediate_bytes(result_bytes)}});
  return list;
}

}  // namespace

FusionStory tell_fusion(const std::array<ProfileRun, 3>& runs, const Workload& workload,
                        const std::string& out_dir) {
  const CompileStats plan = plan_stats(workload);
  std::array<ModeCost, 3> costs;
  for (size_t i = 0; i < costs.size(); ++i) costs[i] = cost_of(runs[i], plan, i == 0);
  const NoGrad no_grad;
  const int64_t result_bytes = static_cast<int64_t>(workload.call().bytes());

  const Loaded eager(runs[0]);
  const Loaded compiled(runs[1]);
  const Loaded fused(runs[2]);
  const trace::TraceDiff to_compiled =
      trace::diff_traces(eager.trace, eager.links, compiled.trace, compiled.links);
  const trace::TraceDiff to_fused =
      trace::diff_traces(compiled.trace, compiled.links, fused.trace, fused.links);
  const double predicted_us = predicted_saving_us(trace::explain(eager.trace, eager.links));
  const double saved_us = costs[0].step_us - costs[1].step_us;
  const std::string page = write_page(runs[0], compiled, runs[1], to_compiled, out_dir);

  const trace::ReportOptions options = {.top = kPartsShown, .use_bold = wants_bold()};
  FusionStory story;
  story.text = cost_table(costs, result_bytes) +
               fmt::format("Predicted from the eager trace: {} per step; measured: {}.\n\n",
                           change_text(predicted_us), change_text(saved_us)) +
               bold("eager -> compile") + "\n" + trace::diff_text(to_compiled, options) + "\n" +
               bold("compile -> fused (the same kernel, chosen by hand)") + "\n" +
               trace::diff_text(to_fused, options) + "Page: " + page + "\n";
  story.json = {{"modes", costs_json(costs, result_bytes)},
                {"predicted_saving_us", predicted_us},
                {"saved_us", saved_us},
                {"eager_to_compile", nlohmann::json::parse(trace::diff_json(to_compiled))},
                {"compile_to_fused", nlohmann::json::parse(trace::diff_json(to_fused))},
                {"page", page}};
  return story;
}

}  // namespace epilogue::tool
