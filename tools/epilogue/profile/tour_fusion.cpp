// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/profile/tour_fusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/caches.h"
#include "base/units.h"
#include "bench/harness.h"
#include "bench/pairs.h"
#include "epilogue/runtime.h"
#include "epilogue/trace/diff.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "tools/epilogue/bench/bench_contenders.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/profile/tour_page.h"

namespace epilogue::tool {
namespace {

constexpr int kPartsShown = 6;
constexpr double kNsPerUs = 1000;

constexpr double kSecondsOfPairs = 1.5;
constexpr int kFewestPairs = 9;
constexpr double kTourBlockMs = 5;

// The time of one mode per step, beside the others in the same run.
struct ModeCost {
  std::string mode;
  bench::PairTiming timing;
  double kernels = 0;
  int64_t intermediate_bytes = 0;  // beside the result, within a step or kept from step to step
  double step_us() const { return timing.median_ns / kNsPerUs; }
};

// Times of contenders in the order of kFusionModes.
std::array<ModeCost, 3> measure(const BenchContenders& contenders,
                                const std::array<ProfileRun, 3>& runs) {
  std::vector<bench::Contender> timed;
  for (const BenchContender& c : contenders.present) timed.push_back(c.timed);
  const auto timings = bench::time_pairs(timed, kSecondsOfPairs, kFewestPairs, kTourBlockMs);
  std::array<ModeCost, 3> costs;
  for (size_t i = 0; i < costs.size(); ++i)
    costs[i] = {kFusionModes[i], timings.at(i), quantity(runs[i], "kernels_per_step"),
                contenders.present[i].peak_intermediate_bytes.value()};
  return costs;
}

// Per step, by the findings on the eager trace; products as compile() runs them.
double predicted_saving_us(const trace::Explanation& eager) {
  double sum = 0;
  for (const trace::Fusion& f : eager.fusions.fusions)
    if (f.kind == trace::FusionKind::row_chain) sum += f.predicted_saving_us;
  return eager.steps.empty() ? 0 : sum / static_cast<double>(eager.steps.size());
}

std::string change_text(double saved_us) {
  return fmt::format("{} {}", format_duration_ns(std::abs(saved_us) * kNsPerUs),
                     saved_us < 0 ? "more" : "less");
}

std::string cost_table(const std::array<ModeCost, 3>& costs) {
  std::string text = fmt::format("{:<8}  {:>8}  {:>12}  {:>22}  {:>14}  {:>8}\n", "mode", "kernels",
                                 "per step", "speed-up [95 %]", "intermediates", "of eager");
  const auto eager_bytes = static_cast<double>(costs[0].intermediate_bytes);
  for (const ModeCost& c : costs) {
    const auto bytes = static_cast<double>(c.intermediate_bytes);
    const bench::Median& r = c.timing.ratio;
    text += fmt::format("{:<8}  {:>8g}  {:>12}  {:>22}  {:>14}  {:>6.1f} %\n", c.mode, c.kernels,
                        format_duration_ns(c.timing.median_ns),
                        fmt::format("{:.2f}x [{:.2f}, {:.2f}]", r.value, r.low, r.high),
                        format_bytes(bytes), bytes / eager_bytes * 100);
  }
  return text + fmt::format(
                    "Medians of {} interleaved rounds; noise {:.2f}x (the slowest over the fastest "
                    "of equal loops).\n",
                    costs[0].timing.rounds, bench::noise_probe());
}

nlohmann::json costs_json(const std::array<ModeCost, 3>& costs) {
  auto list = nlohmann::json::array();
  for (const ModeCost& c : costs)
    list.push_back({{"mode", c.mode},
                    {"kernels_per_step", c.kernels},
                    {"step_us", c.step_us()},
                    {"speed_up", c.timing.ratio.value},
                    {"speed_up_low", c.timing.ratio.low},
                    {"speed_up_high", c.timing.ratio.high},
                    {"intermediate_bytes", c.intermediate_bytes}});
  return list;
}

// The time of the eager steps' products, per step.
double products_us(const trace::Explanation& eager) {
  int64_t ns = 0;
  for (const trace::Gemm& g : eager.gemms.gemms) ns += g.time.total_ns;
  const size_t steps = std::max<size_t>(1, eager.steps.size());
  return static_cast<double>(ns) / kNsPerUs / static_cast<double>(steps);
}

// The conclusion that compile beside eager allows, and no more.
std::string conclusion(const std::array<ModeCost, 3>& costs, double eager_products_us) {
  const bench::Median& r = costs[1].timing.ratio;
  if (r.low > 1) return fmt::format("compile is {:.2f} times as fast as eager here.", r.value);
  if (r.high >= 1)
    return "compile and eager take the same time here, within the noise of this run.";
  const std::string slower =
      fmt::format("compile is slower than eager here ({:.2f}x), because ", r.value);
  const double others_us = costs[0].step_us() - eager_products_us;
  if (costs[1].step_us() > eager_products_us)
    return slower + fmt::format(
                        "its products take longer: its one kernel takes {}, eager's products "
                        "alone take {}. Fusing saves {} of other kernels, which is less. "
                        "CompileOptions::tune = Tune::measure takes the faster plan.",
                        format_duration_ns(costs[1].timing.median_ns),
                        format_duration_ns(eager_products_us * kNsPerUs),
                        format_duration_ns(std::max(others_us, 0.0) * kNsPerUs));
  return slower + "this run's eager steps were faster than those in its trace: measure again.";
}

// A thread's scratch against the cache that it should stay in.
std::string scratch_text(int64_t scratch_bytes) {
  const long l2 = cpu_caches().l2_bytes;
  if (l2 <= 0 || scratch_bytes <= 0) return "";
  const auto each = static_cast<double>(scratch_bytes) / num_threads();
  return fmt::format(
      "Between its products a thread keeps {} of hidden values; a core's L2 has {}{}.\n",
      format_bytes(each), format_bytes(static_cast<double>(l2)),
      each > static_cast<double>(l2) ? ", so that they go to L3 and back" : "");
}

}  // namespace

FusionStory tell_fusion(const std::array<ProfileRun, 3>& runs, const Workload& workload,
                        const std::string& out_dir) {
  const BenchContenders contenders = make_own_contenders(workload, {});
  const std::array<ModeCost, 3> costs = measure(contenders, runs);

  const LoadedRun eager(runs[0]);
  const LoadedRun compiled(runs[1]);
  const LoadedRun fused(runs[2]);
  const trace::TraceDiff to_compiled =
      trace::diff_traces(eager.trace, eager.links, compiled.trace, compiled.links);
  const trace::TraceDiff to_fused =
      trace::diff_traces(compiled.trace, compiled.links, fused.trace, fused.links);
  const trace::Explanation explanation = trace::explain(eager.trace, eager.links);
  const double predicted_us = predicted_saving_us(explanation);
  const double saved_us = costs[0].step_us() - costs[1].step_us();
  const bool is_cpu = workload.input.device().type == DeviceType::cpu;
  const std::string page = write_comparison_page(runs[0], runs[1], compiled, to_compiled, out_dir);

  const trace::ReportOptions options = {.top = kPartsShown, .use_bold = wants_bold()};
  FusionStory story;
  story.conclusion = conclusion(costs, products_us(explanation));
  story.text = cost_table(costs) + story.conclusion + "\n" +
               (is_cpu ? scratch_text(contenders.scratch_bytes) : "") +
               fmt::format("Predicted from the eager trace: {} per step; measured: {}.\n\n",
                           change_text(predicted_us), change_text(saved_us)) +
               bold("eager -> compile") + ", by their traces\n" +
               trace::diff_text(to_compiled, options) + "\n" +
               bold("compile -> fused (the same kernel, chosen by hand)") + ", by their traces\n" +
               trace::diff_text(to_fused, options) + "Page: " + page + "\n";
  story.json = {{"modes", costs_json(costs)},
                {"predicted_saving_us", predicted_us},
                {"saved_us", saved_us},
                {"eager_to_compile", nlohmann::json::parse(trace::diff_json(to_compiled))},
                {"compile_to_fused", nlohmann::json::parse(trace::diff_json(to_fused))},
                {"page", page}};
  return story;
}

}  // namespace epilogue::tool
