// SPDX-License-Identifier: Apache-2.0
// epilogue tour: from matmul + add to the fused GeGLU MLP on real images, each step profiled and
// explained.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/progress.h"
#include "base/units.h"
#include "epilogue/io.h"
#include "epilogue/runtime.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/bench/crossover.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/profile/machine.h"
#include "tools/epilogue/profile/profile_run.h"
#include "tools/epilogue/profile/tour_fusion.h"

namespace epilogue::tool {
namespace {

struct TourFlags {
  std::string out_dir = "traces";
  std::string dtype = "bf16";
  std::string device = "cpu";
  int threads = 0;
  bool quick = false;
  Format format = Format::text;
};

struct Stop {
  std::string title;
  std::string what_to_see;
  WorkloadOptions workload;
  bool is_mlp = false;  // one of the three that are compared in the end
};

WorkloadOptions on_images(const std::string& kind, const TourFlags& o) {
  WorkloadOptions w;
  w.kind = kind;
  w.dtype = o.dtype;
  w.device = o.device;
  w.input = "fashion-mnist";
  w.threads = o.threads;
  return w;
}

std::vector<Stop> stops(const TourFlags& o) {
  Stop matmul_add{
      "matmul + add",
      "Two ops, two kernels: aten::mm and aten::add. What a step takes beyond its kernels is "
      "dispatch: shape rules, allocation, the choice of a kernel.",
      on_images("matmul-add", o)};
  Stop linear{
      "nn.Linear",
      "aten::linear dispatches aten::t, which only swaps strides and launches nothing, then "
      "aten::addmm: one kernel. The bias is added while the product is written (its name "
      "ends in _bias).",
      on_images("linear", o)};
  linear.workload.out_dim = 256;
  Stop mlp{
      "the GeGLU MLP, eager",
      "Three linears, five kernels per step: gate, gelu, up, mul, down. The hidden tensors are "
      "written and read back between them; fusing them saves this. epiLaunchKernel is "
      "the call that runs a kernel: on a CPU it lasts until the kernel is done, so that its share "
      "is that of all kernels together.",
      on_images("mlp", o)};
  mlp.workload.batch = o.quick ? 2 : 8;
  mlp.workload.hidden = 3072;
  mlp.is_mlp = true;
  Stop compiled = mlp;
  compiled.title = "the same MLP through compile()";
  compiled.what_to_see =
      "One kernel per step, and its name lists the ops that it stands for. Blocks of rows run "
      "through all three products, so that the hidden values stay in a cache.";
  compiled.workload.mode = kFusionModes[1];
  Stop fused = mlp;
  fused.title = "the same MLP as an op chosen by hand";
  fused.what_to_see =
      "epilogue::fused_gated_mlp runs the kernel that compile() found, without capture and plan.";
  fused.workload.mode = kFusionModes[2];
  return {matmul_add, linear, mlp, compiled, fused};
}

void require_images() {
  FashionMnistOptions probe;
  probe.train = false;
  probe.max_images = 1;
  if (auto data = load_fashion_mnist(probe); !data) throw Error("[tour] " + data.failure().message);
}

nlohmann::json stop_json(const Stop& stop, const Workload& workload, const ProfileRun& run) {
  nlohmann::json j = {{"title", stop.title},
                      {"workload", workload.description},
                      {"trace", run.trace_file},
                      {"table_file", run.table_file}};
  for (const trace::Quantity& q : run.quantities)
    if (q.value) j["quantities"][q.name] = *q.value;
  return j;
}

void print_stop(int number, const Stop& stop, const Workload& workload, const ProfileRun& run) {
  print("\n" + bold(fmt::format("{}. {}", number, stop.title)) + "\n" + workload.description +
        "\n\n");
  print(run.table);
  print(fmt::format("Per step: {}, {} in kernels, {} around them.\n", kernels_per_step_text(run),
                    format_duration_ns(quantity(run, "kernel_us_per_step") * 1e3),
                    format_duration_ns(quantity(run, "host_us_per_step") * 1e3)));
  print("See: " + stop.what_to_see + "\n");
  print("Trace: " + run.trace_file + "\n");
}

Crossover run_crossover(const TourFlags& o) {
  std::vector<int64_t> sizes = {4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  if (o.quick) sizes.resize(8);  // to 512
  WorkloadOptions base;
  base.dtype = "f32";
  base.device = o.device;
  base.threads = o.threads;
  return measure_crossover(base, sizes, o.out_dir, [](int64_t) {});
}

int run_tour_command(const TourFlags& o) {
  const Device device = require_device(o.device);
  require_images();
  nlohmann::json json = {{"schema_version", kSchemaVersion}, {"stops", nlohmann::json::array()}};
  const bool text = o.format != Format::json;
  if (o.threads != 0) set_num_threads(o.threads);
  if (text)
    print(bold("From nn.Linear to a fused MLP") +
          fmt::format("\nepilogue {} on Fashion-MNIST images, {}\n", version(),
                      device_description(device)));
  ProfileRunOptions run_options;
  run_options.out_dir = o.out_dir;
  // The peaks measured are the CPU's.
  if (device.type == DeviceType::cpu) run_options.metadata = machine_metadata(measured_machine());
  int number = 0;
  std::vector<ProfileRun> mlp_runs;
  Workload eager_mlp;
  for (const Stop& stop : stops(o)) {
    const Workload workload = make_workload(stop.workload);
    run_options.record_shapes = run_options.profile_memory = stop.is_mlp;
    ProfileRun run = run_profile(workload, run_options);
    json["stops"].push_back(stop_json(stop, workload, run));
    if (text) print_stop(++number, stop, workload, run);
    if (!stop.is_mlp) continue;
    if (mlp_runs.empty()) eager_mlp = workload;
    mlp_runs.push_back(std::move(run));
  }
  const FusionStory fusion =
      tell_fusion({mlp_runs.at(0), mlp_runs.at(1), mlp_runs.at(2)}, eager_mlp, o.out_dir);
  json["fusion"] = fusion.json;
  if (text)
    print("\n" + bold(fmt::format("{}. what changed from eager to fused, and why", ++number)) +
          "\n" + fusion.text);

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
  if (!text) {
    print(json.dump(2) + "\n");
    return kExitFine;
  }
  print("\n" + bold(fmt::format("{}. from overhead-bound to compute-bound", number + 1)) +
        "\nmatmul-add in f32 over n: time around the kernels against time in them, per step\n\n" +
        crossover_table(crossover) + "See: " + crossover_sentence(crossover) +
        "\nPlot: " + svg_file + "\n");
  print(fmt::format(
      "\nTables and traces are in {0}/. To see a trace, open https://ui.perfetto.dev and drop the "
      "file there.\nNext: epilogue profile mlp --help; epilogue info --measure; epilogue ops\n",
      o.out_dir));
  return kExitFine;
}

}  // namespace

void add_tour_command(CLI::App& app, Body& run) {
  CLI::App* tour =
      app.add_subcommand("tour", "Goes from nn.Linear to the fused GeGLU MLP on real input");
  auto o = std::make_shared<TourFlags>();
  tour->add_option("--out", o->out_dir, "folder of traces and tables; made if missing")
      ->check(path_name())
      ->option_text("DIR [traces]");
  tour->add_option("--dtype", o->dtype, "f32, bf16 or f16")
      ->transform(dtype_value())
      ->option_text("DTYPE [bf16]");
  add_device_flag(*tour, o->device);
  add_threads(*tour, o->threads);
  tour->add_flag("--quick", o->quick, "smaller sizes: a few seconds");
  add_format(*tour, o->format);
  tour->footer("Example: epilogue tour --out traces\nNeeds the package dataset-fashion-mnist.");
  tour->callback([o, &run] { run = [o] { return run_tour_command(*o); }; });
}

}  // namespace epilogue::tool
