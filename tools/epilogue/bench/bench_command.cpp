// SPDX-License-Identifier: Apache-2.0
// epilogue bench WORKLOAD: our modes and named peers, in turns, on the same work.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/progress.h"
#include "epilogue/runtime.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/bench/bench_report.h"
#include "tools/epilogue/command.h"
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

void require_plausible(const BenchFlags& o) {
  require_device(o.bench.workload.device);
  if (!o.sizes.empty() && !o.sweep) throw Error("[--sizes] expected --sweep beside it, got none");
  if (o.sweep && o.bench.workload.input.ends_with(".safetensors"))
    throw Error(
        "[--sweep] expected random or fashion-mnist input, got a file, whose size is fixed");
}

int run_bench_command(BenchFlags o) {
  require_plausible(o);
  WorkloadOptions& workload = o.bench.workload;
  BenchRun run = {.kind = workload.kind, .dtype = workload.dtype};
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

// The executable of developers' benchmarks. A build folder has it beside the command, an installed
// command does not.
std::filesystem::path developers_executable() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/exe", none).parent_path() / "bench" /
         "epilogue_bench";
}

// Replaces this process by `epilogue_bench NAME ARGUMENTS`.
int run_developers_bench(const CLI::App& app) {
  std::vector<std::string> words = {developers_executable().string(), app.get_name()};
  for (const std::string& word : app.remaining()) words.push_back(word);
  std::error_code none;
  if (!std::filesystem::exists(words[0], none)) {
    if (std::ranges::count(words, "--help") + std::ranges::count(words, "-h") > 0) {
      print(app.help());
      return kExitFine;
    }
    throw Error(
        fmt::format("expected the executable {}, got none: only build folders have it "
                    "(cmake --build BUILD --target epilogue_bench)",
                    words[0]));
  }
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  execv(arguments[0], arguments.data());
  throw Error(fmt::format("cannot run {}: {}", words[0], std::strerror(errno)));
}

// Its options are epilogue_bench's (bench/ladder.cpp, bench/portability.cpp), --help among them.
void add_developers_bench(CLI::App& bench_app, const char* name, const char* about,
                          const char* example, Body& run) {
  CLI::App* app = bench_app.add_subcommand(name, about);
  app->prefix_command();
  app->set_help_flag();
  app->footer(
      std::string("For developers: part of a build folder (target epilogue_bench), not of an "
                  "installed command.\nExample: ") +
      example);
  app->callback([app, &run] { run = [app] { return run_developers_bench(*app); }; });
}

}  // namespace

void add_bench_command(CLI::App& app, Body& run) {
  CLI::App* bench_app = app.add_subcommand("bench", "Times a workload beside named peers");
  bench_app->require_subcommand(1);
  bench_app->footer(std::string(kAbout) + "epilogue bench mlp --dtype f32 --format markdown");
  for (const auto& about : kBenchExamples) add_workload(*bench_app, about, run);
  add_developers_bench(*bench_app, "ladder", "Shows what each optimisation buys, step by step",
                       "epilogue bench ladder --rows 256 --dtype bf16", run);
  add_developers_bench(*bench_app, "portability",
                       "Checks that no plan is slower than eager, on every instruction set",
                       "epilogue bench portability --quick --levels avx2", run);
}

}  // namespace epilogue::tool
