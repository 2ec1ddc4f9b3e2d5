// SPDX-License-Identifier: Apache-2.0
// Profiling, as torch.profiler does it: a schedule, named ranges, the table, a trace for Perfetto.
#include <cstdio>

#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "epilogue/profiler.h"

int main() {
  using namespace epilogue;
  const nn::GatedMLP mlp(256, 1024);
  const Tensor x = randn({64, 256});
  const NoGrad inference;
  profiler::Profile prof({.schedule = profiler::schedule({.wait = 1, .warmup = 1, .active = 3}),
                          .on_trace_ready = [](profiler::Profile& p) {
                            std::puts(
                                trace::format_table(p.key_averages(), {.row_limit = 8}).c_str());
                          }});
  prof.start();
  for (int step = 0; step < 5; ++step) {
    {
      const profiler::RecordFunction range("mlp_forward");
      mlp(x);
    }
    prof.step();  // the table is printed in here, after the third active step
  }
  prof.stop();
  // Open it at https://ui.perfetto.dev, or read it with `epilogue explain`.
  return prof.export_chrome_trace("tutorial_mlp.json.gz").ok() ? 0 : 1;
}
