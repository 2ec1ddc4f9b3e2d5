// SPDX-License-Identifier: Apache-2.0
// epilogue bench portability: the guard of every plan's speed.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "base/progress.h"
#include "epilogue/runtime.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/bench/bench_portability.h"
#include "tools/epilogue/bench/bench_report.h"
#include "tools/epilogue/profile/machine.h"

namespace epilogue::tool {
namespace {

struct PortabilityFlags {
  PortabilityOptions run;
  std::vector<std::string> levels;
  std::vector<std::string> dtypes = {"f32", "bf16"};
  bool is_quiet_only = false;
  int threads = 0;
  Format format = Format::text;
};

std::vector<Isa> levels_of(const std::vector<std::string>& names) {
  std::vector<Isa> levels;
  for (const std::string& name : names) {
    const Isa level = parse_isa(name).value();
    if (!is_available(level))
      throw Error(fmt::format("[--levels] expected levels up to {}, this machine's, got {}",
                              isa_name(detected_isa()), name));
    levels.push_back(level);
  }
  if (names.empty())
    for (const Isa level : available_isas())
      if (level != Isa::baseline) levels.push_back(level);
  if (levels.empty()) levels.push_back(Isa::baseline);
  return levels;
}

int run_portability_command(PortabilityFlags o) {
  if (o.threads != 0) set_num_threads(o.threads);
  o.run.levels = levels_of(o.levels);
  for (const std::string& name : o.dtypes) o.run.dtypes.push_back(parse_dtype(name));
  o.run.disturbances.assign(std::begin(bench::kDisturbances), std::end(bench::kDisturbances));
  if (o.is_quiet_only) o.run.disturbances.resize(1);
  constexpr int64_t kSteps = 1000;
  ProgressBar bar("bench portability", kSteps);
  const PortabilityRun run =
      run_portability(o.run, [&](int64_t done, int64_t all, const std::string& what) {
        bar.update(done * kSteps / all, what);
      });
  bar.finish();
  for (const std::string& line : run.disagreements)
    fmt::print(stderr, "epilogue: results differ: {}\n", line);
  print(portability_document(run, o.run), o.format);
  return run.disagreements.empty() && count_too_slow(run) == 0 ? kExitFine : kExitNo;
}

}  // namespace

void add_bench_portability(CLI::App& bench_app, Body& run) {
  auto options = std::make_shared<PortabilityFlags>();
  CLI::App* app = bench_app.add_subcommand(
      "portability", "Checks that no plan is slower than eager, on every instruction set");
  app->add_option("--levels", options->levels, "instruction-set levels, e.g. avx2 avx512")
      ->option_text("LEVEL ... [all above baseline]");
  app->add_option("--dtypes", options->dtypes, "f32, bf16, f16")
      ->transform(dtype_value())
      ->check(choices({"f32", "bf16", "f16"}))
      ->option_text("DTYPE ... [f32 bf16]");
  app->add_flag("--quiet-only", options->is_quiet_only,
                "leave out the runs beside other processes");
  app->add_flag("--quick", options->run.quick, "only small shapes");
  app->add_flag("--large", options->run.large,
                "8192x768x3072 and 512x4096x14336 too: half an hour");
  app->add_option("--seconds", options->run.seconds,
                  "seconds of timing per cell; slow shapes take longer")
      ->check(number_above(0))
      ->option_text("S [1]");
  app->add_option("--rounds", options->run.rounds, "least number of pairs per cell")
      ->check(whole_number(3))
      ->option_text("N [7]");
  app->add_option("--torch", options->run.torch,
                  "a Python that has PyTorch; or set EPILOGUE_PYTHON")
      ->option_text("PYTHON");
  add_threads(*app, options->threads);
  add_format(*app, options->format);
  app->footer(
      "Compares eager with compile, with fused (the row chain itself) and, for few rows, with\n"
      "8-bit weights, on GeGLU MLPs, a linear layer and training steps. Each runs alone, beside a\n"
      "process that streams memory, and beside one that keeps the last processor busy. oneDNN and\n"
      "PyTorch run alone only. Exit 1 if results do not agree, or if the interval of a plan lies\n"
      "wholly below 0.97 of eager's speed.\n"
      "Example: epilogue bench portability --quick --levels avx2");
  app->callback([options, &run] { run = [options] { return run_portability_command(*options); }; });
}

}  // namespace epilogue::tool
