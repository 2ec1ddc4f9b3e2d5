#include <cstdio>

#include "epilogue/epilogue.h"

int main() {
  using namespace epilogue;
  nn::GatedMLP mlp(768, 3072, nn::Activation::geglu);  // gate_proj, up_proj, down_proj
  const Tensor x = randn({64, 768});
  const NoGrad inference;
  profiler::Profile prof;
  prof.start();
  const Tensor y = mlp(x);
  prof.stop();
  std::puts(trace::format_table(prof.key_averages(), {.sort_by = "cpu_time_total"}).c_str());
  return prof.export_chrome_trace("mlp.json.gz").ok() && y.size(-1) == 768 ? 0 : 1;
}
