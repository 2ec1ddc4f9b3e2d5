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
#include "measure/machine_facts.h"
#include "explain/render/document.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/bench/crossover.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/profile/machine.h"
#include "tools/epilogue/profile/profile_run.h"
#include "tools/epilogue/profile/tour_document.h"
#include "tools/epilogue/profile/tour_fusion.h"
#include "tools/epilogue/profile/tour_page.h"
#include "tools/epilogue/profile/tour_stops.h"

namespace epilogue::tool {
namespace {

struct TourFlags : TourOptions {
  Format format = Format::text;
};

void require_images() {
  FashionMnistOptions probe;
  probe.train = false;
  probe.max_images = 1;
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
  WorkloadOptions base;
  base.dtype = "f32";
  base.device = o.device;
  base.threads = o.threads;
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
  end.json = [&json] { return json.dump(2) + "\n"; };
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
