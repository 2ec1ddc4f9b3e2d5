// SPDX-License-Identifier: Apache-2.0
// The profiler's cost: per event while it records, per call while it does not, and whether the
// wall time that it reports as its own explains the difference to an unprofiled run.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "bench/harness.h"
#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "epilogue/profiler.h"

namespace epilogue::bench {
namespace {

struct Workload {
  std::string name;
  std::function<void()> call;
  int calls;
};

double wall_ns(const Workload& w) {
  const int64_t start = monotonic_ns();
  for (int i = 0; i < w.calls; ++i) w.call();
  return static_cast<double>(monotonic_ns() - start);
}

struct Profiled {
  double wall_ns;
  double overhead_ns;
};

Profiled profiled(const Workload& w) {
  profiler::Profile prof;
  prof.start();
  const double ns = wall_ns(w);
  prof.stop();
  return {ns, prof.recorder_overhead_ns()};
}

// Plain and profiled take turns; medians of both, and of the corrected wall time.
bool report(const Workload& w) {
  std::vector<double> plain;
  std::vector<double> with;
  std::vector<double> error_pct;
  for (int round = 0; round < 15; ++round) {
    const double a = wall_ns(w);
    const Profiled p = profiled(w);
    const double b = wall_ns(w);
    const double reference = (a + b) / 2;
    plain.push_back(reference / w.calls);
    with.push_back(p.wall_ns / w.calls);
    error_pct.push_back((p.wall_ns - p.overhead_ns - reference) / reference * 100);
  }
  const double error = median_of(error_pct);
  fmt::print("{:<34}{:>12.0f}{:>12.0f}{:>+14.1f} %\n", w.name, median_of(plain), median_of(with),
             error);
  return std::abs(error) <= 5;
}

int run() {
  const NoGrad no_grad;
  fmt::print("profiler cost: {}\nnoise probe: {:.2f}x\n\n", machine_line(), noise_probe());

  volatile int sink = 0;
  const std::vector<Contender> idle = {{"empty loop body", [&] { sink = sink + 1; }},
                                       {"record_function, not recording", [&] {
                                          const profiler::RecordFunction range("x");
                                          sink = sink + 1;
                                        }}};
  const auto t = interleave(idle, plan_for(idle, 0.3, 20));
  fmt::print("record_function while nothing records: {:.1f} ns\n", t[1].min_ns - t[0].min_ns);

  profiler::Profile prof;
  prof.start();
  prof.stop();
  const profiler::RecorderCost cost = prof.recorder_cost();
  fmt::print(
      "recording, ns per event: op {:.0f}, kernel (launch and kernel) {:.0f}, range {:.0f}\n\n",
      cost.ns_per_op, cost.ns_per_kernel, cost.ns_per_range);

  const Tensor a = rand({64, 64});
  const Tensor b = rand({64, 64});
  nn::GatedMLP mlp(64, 256);
  const Tensor x = rand({16, 64});
  const Tensor wide = rand({128, 768});
  nn::GatedMLP large(768, 3072);
  const std::vector<Workload> workloads = {
      {"add 64 x 64", [&] { add(a, b); }, 4000},
      {"matmul + add 64 x 64", [&] { add(mm(a, b), b); }, 1500},
      {"GeGLU MLP 16, 64, 256", [&] { mlp(x); }, 600},
      {"GeGLU MLP 128, 768, 3072", [&] { large(wide); }, 3}};
  fmt::print("{:<34}{:>12}{:>12}{:>16}\n", "ns per call", "plain", "profiled",
             "corrected vs plain");
  bool ok = true;
  for (const Workload& w : workloads) ok = report(w) && ok;
  fmt::print("\nwall time less the reported overhead is within 5 % of the unprofiled run: {}\n",
             ok ? "yes" : "NO");
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main() { return epilogue::bench::run(); }
