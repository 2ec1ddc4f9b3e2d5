// SPDX-License-Identifier: Apache-2.0
// epilogue bench WORKLOAD: our modes and named peers, in turns, on the same work.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/progress.h"
#include "epilogue/runtime.h"
#include "measure/measure.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/bench/bench_ladder_report.h"
#include "tools/epilogue/bench/bench_portability.h"
#include "tools/epilogue/bench/bench_report.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/memory_limit.h"
#include "tools/epilogue/profile/device_option.h"
#include "tools/epilogue/profile/machine.h"

namespace epilogue::tool {
namespace {

struct BenchFlags {
  BenchOptions bench;
  bool sweep = false;
  std::vector<int64_t> sizes;
  std::string torch;
  std::string out_dir = "traces";
  std::string tag;
  Format format = Format::text;
};

struct LadderCommand {
  LadderOptions ladder;
  std::string dtype = "f32";
  int threads = 0;
  Format format = Format::text;
};

// Which size a sweep varies, and over what unless the caller says so.
struct Sweep {
  std::string size;
  std::vector<int64_t> values;
};

Sweep sweep_of(const std::string& kind) {
  if (kind == "matmul-add") return {"size", {16, 32, 64, 128, 256, 512, 1024}};
  return {"batch", {1, 4, 16, 64, 256, 1024, 4096}};
}

void set_size(WorkloadOptions& o, int64_t value) {
  if (o.kind == "matmul-add") {
    o.size = value;
  } else {
    o.batch = value;
    o.seq = 1;  // a row of the sweep is a row of the product
  }
}

// Prints what differs; the exit code.
int report_disagreements(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print(stderr, "epilogue: results differ: {}\n", line);
  return kExitNo;
}

void require_plausible(const BenchFlags& o) {
  require_device(o.bench.workload.device);
  if (!o.sizes.empty() && !o.sweep) throw Error("[--sizes] expected --sweep beside it, got none");
  if (o.sweep && o.bench.workload.input.ends_with(".safetensors"))
    throw Error(
        "[--sweep] expected random or fashion-mnist input, got a file, whose size is fixed");
}

// The peak is the CPU's: of another device it stays unknown.
BenchMachine measure_machine(DType dtype, Device device) {
  if (device.type != DeviceType::cpu) return {{}, bench::noise_probe(), device_description(device)};
  return {measure::measure_peak_gflops(dtype), bench::noise_probe(), bench::machine_line()};
}

int run_bench_command(BenchFlags o) {
  require_plausible(o);
  WorkloadOptions& workload = o.bench.workload;
  BenchRun run;
  run.kind = workload.kind;
  run.dtype = workload.dtype;
  std::vector<int64_t> sizes = {0};
  if (o.sweep) {
    const Sweep sweep = sweep_of(workload.kind);
    run.swept = sweep.size;
    sizes = o.sizes.empty() ? sweep.values : o.sizes;
  }
  if (workload.threads != 0) set_num_threads(workload.threads);
  const DType dtype = parse_dtype(workload.dtype);
  know_machine();
  ProgressBar bar("bench " + workload.kind, static_cast<int64_t>(sizes.size()));
  bar.update(0, "measuring the peak");
  run.machine = measure_machine(dtype, parse_device(workload.device));
  bar.update(0, "starting PyTorch");
  TorchChoice torch = choose_torch(o.torch);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (o.sweep) set_size(workload, sizes[i]);
    const auto progress = [&](const std::string& note) {
      bar.update(static_cast<int64_t>(i), note);
    };
    run.cases.push_back(run_bench_case(o.bench, torch, progress));
    if (!run.cases.back().disagreements.empty()) {
      bar.finish();
      return report_disagreements(run.cases.back().disagreements);
    }
  }
  bar.finish();
  if (o.sweep) {
    run.tag = o.tag.empty() ? fmt::format("bench_{}_{}", workload.kind, workload.dtype) : o.tag;
    const std::string base = o.out_dir + "/" + run.tag;
    run.plot_file = base + ".svg";
    run.table_file = base + ".md";
    write_file(run.plot_file, bench_svg(run)).value();
    write_file(run.table_file, trace::document_markdown(bench_document(run))).value();
  }
  print(bench_document(run), o.format);
  return kExitFine;
}

int run_ladder(LadderCommand o) {
  o.ladder.dtype = parse_dtype(o.dtype);
  const auto rows = static_cast<double>(o.ladder.rows);
  const auto dim = static_cast<double>(o.ladder.dim);
  const auto hidden = static_cast<double>(o.ladder.hidden);
  require_memory("--rows, --dim, --hidden", 2 * rows * dim + 3 * dim * hidden, o.ladder.dtype);
  if (o.threads != 0) set_num_threads(o.threads);
  know_machine();
  constexpr int64_t kSteps = 3;
  ProgressBar bar("bench ladder", kSteps);
  int64_t done = 0;
  bar.update(done, "measuring the peak");
  LadderRun run{measure_machine(o.ladder.dtype, Device{}), o.dtype, {}};
  run.ladders = climb_ladders(o.ladder, [&](const std::string& note) { bar.update(++done, note); });
  bar.finish();
  std::vector<std::string> disagreements;
  for (const Ladder& l : run.ladders)
    disagreements.insert(disagreements.end(), l.disagreements.begin(), l.disagreements.end());
  if (!disagreements.empty()) return report_disagreements(disagreements);
  print(ladder_document(run), o.format);
  return kExitFine;
}

constexpr const char* kBenchExamples[][3] = {
    {"matmul-add", "torch.add(torch.matmul(x, w), b) on square matrices",
     "epilogue bench matmul-add --size 512 --dtype f32"},
    {"linear", "nn.Linear", "epilogue bench linear --batch 256 --in-dim 768 --out-dim 3072"},
    {"mlp", "gated or plain MLP", "epilogue bench mlp --batch 2 --torch python3 --sweep"}};

constexpr const char* kAbout =
    "Eager, compile and fused take turns with oneDNN (if built with -DEPILOGUE_BENCH=ON) and\n"
    "PyTorch (with --torch: eager, and torch.compile with frozen weights and max-autotune), in\n"
    "blocks of calls; the first calls of a block are not counted. Before anything is timed, each\n"
    "result must agree with the same computation in double; if one does not, exit 1.\n"
    "--sweep also writes DIR/NAME.svg and DIR/NAME.md. EPILOGUE_ISA lowers the\n"
    "instruction set of epilogue, ONEDNN_MAX_CPU_ISA and ATEN_CPU_CAPABILITY those of its peers.\n"
    "Example: ";

void add_workload(CLI::App& bench_app, const char* const (&about)[3], Body& run) {
  auto options = std::make_shared<BenchFlags>();
  CLI::App* app = bench_app.add_subcommand(about[0], about[1]);
  add_workload_flags(*app, about[0], options->bench.workload);
  for (const char* flag : {"--mode", "--backward", "--cold"})
    if (CLI::Option* option = app->get_option_no_throw(flag)) app->remove_option(option);
  app->add_flag("--sweep", options->sweep, "run over sizes, write a plot and a table");
  app->add_option("--sizes", options->sizes, "the sizes of --sweep: " + sweep_of(about[0]).size)
      ->check(whole_number(1))
      ->option_text("N ...");
  add_tune_flag(*app, options->bench.workload);
  app->add_option("--torch", options->torch, "a Python that has PyTorch; or set EPILOGUE_PYTHON")
      ->option_text("PYTHON");
  app->add_option("--seconds", options->bench.seconds,
                  "seconds of timing for all contenders together")
      ->check(number_above(0))
      ->option_text("S [3]");
  app->add_option("--tolerance", options->bench.tolerance,
                  "relative L2 error allowed against double")
      ->check(number_from(0))
      ->option_text("X [by dtype]");
  add_out_and_tag(*app, options->out_dir, options->tag, "the sweep's plot and table",
                  "bench_WORKLOAD_DTYPE");
  add_format(*app, options->format);
  app->footer(std::string(kAbout) + about[2]);
  app->callback([options, &run] { run = [options] { return run_bench_command(*options); }; });
}

void add_ladder(CLI::App& bench_app, Body& run) {
  auto options = std::make_shared<LadderCommand>();
  LadderOptions& ladder = options->ladder;
  CLI::App* app =
      bench_app.add_subcommand("ladder", "Shows what each optimisation buys, step by step");
  app->add_option("--rows", ladder.rows, "rows of x")
      ->check(whole_number(1))
      ->option_text("N [512]");
  app->add_option("--dim", ladder.dim, "width")->check(whole_number(1))->option_text("N [768]");
  app->add_option("--hidden", ladder.hidden, "hidden width of the MLP")
      ->check(whole_number(1))
      ->option_text("N [3072]");
  app->add_option("--dtype", options->dtype, "f32 or bf16")
      ->transform(dtype_value())
      ->check(choices({"f32", "bf16", "f16"}))
      ->option_text("DTYPE [f32]");
  add_threads(*app, options->threads);
  app->add_option("--seed", ladder.seed, "seed of weights and input")
      ->check(whole_number(0))
      ->option_text("N [0]");
  app->add_option("--seconds", ladder.seconds,
                  "seconds of timing per ladder; slow steps take longer")
      ->check(number_above(0))
      ->option_text("S [4]");
  app->add_option("--tolerance", ladder.tolerance, "relative L2 error allowed against double")
      ->check(number_from(0))
      ->option_text("X [by dtype]");
  add_format(*app, options->format);
  app->footer(
      "Runs the same product and the same GeGLU MLP as naive loops, blocked, packed, with a\n"
      "vector kernel, with its epilogue fused, with gate and up merged, and as one row chain.\n"
      "Each runs on all threads.\n"
      "Example: epilogue bench ladder --rows 256 --dtype bf16");
  app->callback([options, &run] { run = [options] { return run_ladder(*options); }; });
}

}  // namespace

void add_bench_command(CLI::App& app, Body& run) {
  CLI::App* bench_app = app.add_subcommand("bench", "Times a workload beside named peers");
  bench_app->require_subcommand(1);
  bench_app->footer(std::string(kAbout) + "epilogue bench mlp --dtype f32 --format markdown");
  for (const auto& about : kBenchExamples) add_workload(*bench_app, about, run);
  add_ladder(*bench_app, run);
  add_bench_portability(*bench_app, run);
}

}  // namespace epilogue::tool
