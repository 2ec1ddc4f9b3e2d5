// SPDX-License-Identifier: Apache-2.0
// epilogue tour: from matmul + add to the fused GeGLU MLP on real images, each step profiled and
// explained.

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/caches.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/units.h"
#include "bench/harness.h"
#include "bench/pairs.h"
#include "epilogue/io.h"
#include "epilogue/runtime.h"
#include "epilogue/trace/diff.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/links.h"
#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"
#include "explain/render/document.h"
#include "measure/machine_facts.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/bench/bench_contenders.h"
#include "tools/epilogue/bench/crossover.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/profile/machine.h"
#include "tools/epilogue/profile/profile_run.h"
#include "tools/epilogue/profile/workload.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {

namespace {

struct TourOptions {
  std::string out_dir = "traces";
  std::string tag;  // of a folder in out_dir; empty: out_dir itself
  std::string dtype = "bf16";
  std::string device = "cpu";
  int threads = 0;  // 0: as many as the process has
  bool quick = false;
};

struct TourStop {
  std::string title;
  std::string what_to_see;
  WorkloadOptions workload;
  bool is_mlp = false;  // one of the three that are compared in the end
};

// The trace that a run left.
struct LoadedRun {
  explicit LoadedRun(const ProfileRun& run);
  trace::Trace trace;
  trace::Links links;
};

// The modes of the MLP's three runs, in their order.
inline constexpr std::array<const char*, 3> kFusionModes = {"eager", "compile", "fused"};

struct FusionStory {
  std::string text;
  std::string conclusion;  // of compile beside eager: one sentence
  nlohmann::json json;     // modes, predicted_saving_us, saved_us, diffs, page
};

WorkloadOptions on_images(const std::string& kind, const TourOptions& o) {
  WorkloadOptions w;
  w.kind = kind;
  w.dtype = o.dtype;
  w.device = o.device;
  w.input = "fashion-mnist";
  w.threads = o.threads;
  return w;
}

// matmul + add, nn.Linear, then the GeGLU MLP in each mode of kFusionModes.
std::vector<TourStop> tour_stops(const TourOptions& o) {
  TourStop matmul_add{
      "matmul + add",
      "Two ops, two kernels: aten::mm and aten::add. The time of a step beyond its kernels is "
      "dispatch: shape rules, allocation, the choice of a kernel.",
      on_images("matmul-add", o)};
  TourStop linear{"nn.Linear",
                  "aten::linear dispatches aten::t, which only swaps strides and launches nothing, "
                  "then aten::addmm: one kernel. The bias is added while the product is written "
                  "(its name ends in _bias).",
                  on_images("linear", o)};
  linear.workload.out_dim = 256;
  TourStop mlp{
      "the GeGLU MLP, eager",
      "Three linears, five kernels per step: gate, gelu, up, mul, down. The hidden tensors are "
      "written and read back between them; fusing them saves this. epiLaunchKernel is "
      "the call that runs a kernel: on a CPU it lasts until the kernel is done, so that its share "
      "is that of all kernels together.",
      on_images("mlp", o)};
  mlp.workload.batch = o.quick ? 2 : 8;
  mlp.workload.hidden = 3072;
  mlp.is_mlp = true;
  TourStop compiled = mlp;
  compiled.title = "the same MLP through compile()";
  compiled.what_to_see =
      "One kernel per step, and its name lists the ops that it stands for. Blocks of rows run "
      "through all three products, so that the hidden values stay in a cache.";
  compiled.workload.mode = kFusionModes[1];
  TourStop fused = mlp;
  fused.title = "the same MLP as an op chosen by hand";
  fused.what_to_see =
      "epilogue::fused_gated_mlp runs the kernel that compile() found, without capture and plan.";
  fused.workload.mode = kFusionModes[2];
  return {matmul_add, linear, mlp, compiled, fused};
}

struct Comparison {
  const trace::TraceDiff* diff = nullptr;
  std::string before;  // path of the other trace
};

void write_page(const std::string& path, const std::string& title, const ProfileRun& run,
                const LoadedRun& loaded, const Comparison& with) {
  const std::string file = read_file(run.trace_file).value();
  const trace::Explanation explanation = trace::explain(loaded.trace, loaded.links);
  write_file(path, trace::html_report({.trace = loaded.trace,
                                       .links = loaded.links,
                                       .explanation = explanation,
                                       .title = title,
                                       .embedded = trace::embed_trace(file, run.trace_file),
                                       .diff = with.diff,
                                       .before_path = with.before}))
      .value();
}

LoadedRun::LoadedRun(const ProfileRun& run)
    : trace(load_trace(run.trace_file)), links(link(trace)) {}

// Writes OUT_DIR/TAG.html and returns its path. Throws Error where a file cannot be read or
// written, as the other does.
std::string write_step_page(const ProfileRun& run, const std::string& title,
                            const std::string& out_dir) {
  const std::string path = out_dir + "/" + run.tag + ".html";
  write_page(path, title, run, LoadedRun(run), {});
  return path;
}

// Writes OUT_DIR/mlp_eager_to_compile.html and returns its path.
std::string write_comparison_page(const ProfileRun& before, const ProfileRun& after,
                                  const LoadedRun& loaded_after, const trace::TraceDiff& diff,
                                  const std::string& out_dir) {
  const std::string path = out_dir + "/mlp_eager_to_compile.html";
  write_page(path, "MLP: from eager to compiled", after, loaded_after, {&diff, before.trace_file});
  return path;
}

constexpr int kRowsShown = 12;
constexpr size_t kNameWidth = 44;

std::string time_or_dash(int64_t ns) {
  return ns == 0 ? "-" : format_duration_ns(static_cast<double>(ns));
}

trace::Grid largest_rows(trace::KeyAverages averages) {
  trace::sort_rows(averages.rows, "cpu_time_total");
  // Kernels have no CPU time of their own and would come last; they are what a step is about.
  std::stable_sort(averages.rows.begin(), averages.rows.end(),
                   [](const trace::Row& a, const trace::Row& b) {
                     return std::max(a.cpu_time_total_ns, a.device_time_total_ns) >
                            std::max(b.cpu_time_total_ns, b.device_time_total_ns);
                   });
  trace::Grid grid;
  grid.columns = {{"name", true, kNameWidth},
                  {"calls"},
                  {"CPU total"},
                  {"self CPU"},
                  {"kernels"},
                  {"kernels %"}};
  const auto all = static_cast<double>(averages.self_device_time_total_ns());
  for (const trace::Row& row : averages.rows) {
    const auto kernels = static_cast<double>(row.device_time_total_ns);
    grid.rows.push_back({row.key, std::to_string(row.count), time_or_dash(row.cpu_time_total_ns),
                         time_or_dash(row.self_cpu_time_total_ns),
                         time_or_dash(row.device_time_total_ns),
                         kernels == 0 ? "-" : fmt::format("{:.1f} %", kernels / all * 100)});
  }
  trace::limit_rows(grid, kRowsShown);
  return grid;
}

// The step's largest rows in few columns (the file beside the trace has all of both), its sums,
// what to see and where its files lie.
trace::Document step_document(int number, const TourStop& stop, const Workload& workload,
                              const ProfileRun& run, const std::string& page) {
  return {trace::Heading{fmt::format("{}. {}", number, stop.title), 3},
          trace::Paragraph{workload.description},
          trace::preformatted("\n"),
          largest_rows(run.averages),
          trace::preformatted("\n"),
          trace::Paragraph{fmt::format(
              "Per step: {}, {} in kernels, {} around them.", kernels_per_step_text(run),
              format_duration_ns(quantity(run, "kernel_us_per_step") * 1e3),
              format_duration_ns(quantity(run, "host_us_per_step") * 1e3))},
          trace::Paragraph{"See: " + stop.what_to_see},
          trace::Paragraph{"Trace: " + run.trace_file},
          trace::Paragraph{"Table: " + run.table_file},
          trace::Paragraph{"Page: " + page},
          trace::preformatted("\n")};
}

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

// From the traces that the runs (with shapes and memory) left. `workload` is the eager one.
// Writes OUT_DIR/mlp_eager_to_compile.html. Throws Error where a file cannot be read or written.
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
                {"eager_to_compile", parse_json_or_throw(trace::diff_json(to_compiled))},
                {"compile_to_fused", parse_json_or_throw(trace::diff_json(to_fused))},
                {"page", page}};
  return story;
}

struct TourFlags : TourOptions {
  Format format = Format::text;
};

void require_images() {
  FashionMnistOptions probe = {.train = false, .max_images = 1};
  if (auto data = load_fashion_mnist(probe); !data) throw Error("[tour] " + data.failure().message);
}

nlohmann::json stop_json(const TourStop& stop, const Workload& workload, const ProfileRun& run,
                         const std::string& page) {
  nlohmann::json j = {{"title", stop.title},
                      {"workload", workload.description},
                      {"trace", run.trace_file},
                      {"table_file", run.table_file},
                      {"page", page}};
  for (const trace::Quantity& q : run.quantities)
    if (q.value) j["quantities"][q.name] = *q.value;
  return j;
}

Crossover run_crossover(const TourFlags& o) {
  std::vector<int64_t> sizes = {4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  if (o.quick) sizes.resize(8);  // to 512
  WorkloadOptions base = {.dtype = "f32", .device = o.device, .threads = o.threads};
  return measure_crossover(base, sizes, o.out_dir, [](int64_t) {});
}

int run_tour_command(const TourFlags& o) {
  const Device device = require_device(o.device);
  require_images();
  nlohmann::json json = {{"schema_version", kSchemaVersion},
                         {"tag", o.tag.empty() ? nlohmann::json() : nlohmann::json(o.tag)},
                         {"stops", nlohmann::json::array()}};
  // The tour tells as it goes; scripts get one object at its end.
  const auto tell = [&o](const std::string& text) {
    print(trace::Document{trace::preformatted(text)}, o.format);
  };
  if (o.threads != 0) set_num_threads(o.threads);
  tell(bold("From nn.Linear to a fused MLP") +
       fmt::format("\nepilogue {} on Fashion-MNIST images, {}\n\n", version(),
                   device_description(device)));
  ProfileRunOptions run_options;
  run_options.out_dir = o.out_dir;
  // The peaks measured are the CPU's.
  if (device.type == DeviceType::cpu)
    run_options.metadata = measure::trace_metadata(measured_machine());
  int number = 0;
  std::vector<ProfileRun> mlp_runs;
  Workload eager_mlp;
  for (const TourStop& stop : tour_stops(o)) {
    const Workload workload = make_workload(stop.workload);
    run_options.record_shapes = run_options.profile_memory = stop.is_mlp;
    ProfileRun run = run_profile(workload, run_options);
    const std::string page = write_step_page(run, stop.title, o.out_dir);
    json["stops"].push_back(stop_json(stop, workload, run, page));
    print(step_document(++number, stop, workload, run, page), o.format);
    if (!stop.is_mlp) continue;
    if (mlp_runs.empty()) eager_mlp = workload;
    mlp_runs.push_back(std::move(run));
  }
  const FusionStory fusion =
      tell_fusion({mlp_runs.at(0), mlp_runs.at(1), mlp_runs.at(2)}, eager_mlp, o.out_dir);
  json["fusion"] = fusion.json;
  tell(bold(fmt::format("{}. what changed from eager to fused, and why", ++number)) + "\n" +
       fusion.text);

  const Crossover crossover = run_crossover(o);
  const std::string svg_file = o.out_dir + "/crossover.svg";
  if (auto s = write_file(svg_file, crossover_svg(crossover, "f32")); !s)
    throw Error("[tour] " + s.failure().message);
  for (const CrossoverRow& r : crossover.rows)
    json["crossover"].push_back({{"size", r.size},
                                 {"dispatch_us", r.dispatch_us},
                                 {"kernel_us", r.kernel_us},
                                 {"gflops", r.gflops}});
  const std::optional<double> crossover_size = crossover.size();
  json["crossover_size"] = crossover_size ? nlohmann::json(*crossover_size) : nlohmann::json();
  json["crossings"] = crossover.crossings;
  json["crossover_plot"] = svg_file;
  trace::Document end = {
      trace::preformatted(
          "\n" + bold(fmt::format("{}. from overhead-bound to compute-bound", number + 1)) +
          "\nmatmul-add in f32 over n: time around the kernels against time in them, per step\n\n" +
          crossover_table(crossover) + "Plot: " + svg_file + "\n" +
          fmt::format("\nPages, tables and traces are in {}/. A page opens in any browser; a trace "
                      "opens in https://ui.perfetto.dev.\nNext: epilogue profile mlp --help; "
                      "epilogue info --measure; epilogue ops\n\n",
                      o.out_dir) +
          bold("What one may conclude") + "\n"),
      trace::Bullets{{{fusion.conclusion, {}}, {crossover_sentence(crossover), {}}}}};
  json["conclusions"] = {fusion.conclusion, crossover_sentence(crossover)};
  end.json = [&json] { return json_text(json, 2) + "\n"; };
  print(end, o.format);
  return kExitFine;
}

}  // namespace

void add_tour_command(CLI::App& app, Body& run) {
  CLI::App* tour =
      app.add_subcommand("tour", "Goes from nn.Linear to the fused GeGLU MLP on real input");
  auto o = std::make_shared<TourFlags>();
  add_out_and_tag(*tour, o->out_dir, o->tag, "traces, tables and pages", "none: DIR itself");
  tour->add_option("--dtype", o->dtype, "f32, bf16 or f16")
      ->transform(dtype_value())
      ->check(choices({"f32", "bf16", "f16"}))
      ->option_text("DTYPE [bf16]");
  add_device_flag(*tour, o->device);
  add_threads(*tour, o->threads);
  tour->add_flag("--quick", o->quick, "smaller sizes: a few seconds");
  add_format(*tour, o->format);
  tour->footer("Example: epilogue tour --out traces\nNeeds the package dataset-fashion-mnist.");
  tour->callback([o, &run] {
    if (!o->tag.empty()) o->out_dir += "/" + o->tag;
    run = [o] { return run_tour_command(*o); };
  });
}

}  // namespace epilogue::tool
