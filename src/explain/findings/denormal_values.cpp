// SPDX-License-Identifier: Apache-2.0
// Products of a run without a device that are slower than one core's scalar arithmetic: what they
// read is the reason, not their sizes.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// One core without vectors does more.
constexpr double kAbsurdGflops = 1;
constexpr double kLeastFlops = 1e7;    // of a call: less is partly its dispatch
constexpr double kOfCaches = 8;        // less waits for memory
constexpr double kSteadyTimes = 2;     // other work on the machine leaves some calls fast
constexpr double kFlushedGflops = 10;  // at least, of an ordinary core

bool is_absurd(const HostProduct& p) {
  if (p.type != "f32" && p.type != "f64") return false;
  const auto fastest = static_cast<double>(p.time.min_ns);
  return fastest > 0 && p.shape.flops() >= kLeastFlops && p.flops_per_byte >= kOfCaches &&
         p.shape.flops() / fastest < kAbsurdGflops &&
         static_cast<double>(p.time.max_ns) < kSteadyTimes * fastest;
}

void find_denormal_values(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  std::vector<const HostProduct*> slow;
  int64_t ns = 0;
  double flops = 0;
  for (const HostProduct& p : e.host->products) {
    if (!is_absurd(p)) continue;
    slow.push_back(&p);
    ns += p.time.total_ns;
    flops += p.shape.flops() * static_cast<double>(p.time.count);
  }
  if (slow.empty() || !is_notable(*e.host, ns)) return;
  const HostProduct& worst = *slow.front();
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format(
      "{} runs at {:.2g} GFLOP/s, less than one core without vectors does: denormal numbers are "
      "the likely cause ({})",
      worst.op, worst.gflops, share(*e.host, ns));
  f.evidence.push_back(fmt::format("{} x {} x {} in {}, {}: the fastest takes {}, the slowest {}",
                                   worst.shape.m, worst.shape.n, worst.shape.k, worst.type,
                                   counted(worst.time.count, "call", "calls"),
                                   duration(worst.time.min_ns), duration(worst.time.max_ns)));
  f.evidence.emplace_back(
      "numbers below 1e-38 (states that decay, filters, activations that vanish) make a CPU's "
      "arithmetic 10 to 100 times slower, also in the elementwise ops that made them; the trace "
      "does not show values");
  advise(
      f,
      "torch.set_flush_denormal(True), once in each process, takes such numbers for 0; or keep "
      "them away: a floor (clamp, a small constant) for the state that decays, or set it to zero");
  f.cost_us = to_us(ns);
  f.saving_us = to_us(std::max<int64_t>(0, ns - static_cast<int64_t>(flops / kFlushedGflops)));
  claim_products(f, slow);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kDenormalValuesRule = {
    .id = "denormal-values",
    .says =
        "that products of a run without a device are slower than one core without vectors is, for "
        "which denormal numbers are the likely cause; thread-contention is not said then",
    .said_if =
        [] {
          return fmt::format(
              "calls of {:g} MFLOP or more in f32 or f64, with {:g} FLOPs for each byte or more, "
              "stay below {:g} GFLOP/s, and the slowest of a shape takes less than {:g} times as "
              "long as its fastest; {}; saves what is beyond {:g} GFLOP/s",
              kLeastFlops / 1e6, kOfCaches, kAbsurdGflops, kSteadyTimes, share_of_wall(),
              kFlushedGflops);
        },
    .find = find_denormal_values};

}  // namespace epilogue::trace
