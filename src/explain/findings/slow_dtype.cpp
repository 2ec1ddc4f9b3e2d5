// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"
#include "explain/findings/stalled_ops.h"

namespace epilogue::trace {
namespace {

constexpr double kLargeProductFlops = 5e6;
constexpr double kSlowerThanTrace = 3;  // than f32 products
constexpr double kSlowerThanPeak = 6;   // in f32

double flops_of(const HostProduct& p) { return p.gflops * static_cast<double>(p.time.median_ns); }

bool is_16_bit(const HostProduct& p) { return p.type == "bf16" || p.type == "f16"; }

// The fastest large product of one type in GFLOP/s: what the machine is known to do.
double fastest_of(const HostTime& host, std::string_view type) {
  double best = 0;
  for (const HostProduct& p : host.products)
    if (p.type == type && flops_of(p) >= kLargeProductFlops) best = std::max(best, p.gflops);
  return best;
}

// A product in 16 bits that is so many times as fast as a slow one has instructions: a slow one
// beside it has another reason.
constexpr double kSurelyFast = 3;

bool lacks_instructions(const HostTime& host, const std::string& type) {
  return host.peaks && host.peaks->lacks(type);
}

bool has_instructions(const HostTime& host, const std::string& type) {
  return host.peaks && host.peaks->has(type);
}

// Below this a product in 16 bits is slow: 1 / kSlowerThanTrace of the trace's own f32, or what any
// CPU with instructions for the type exceeds. Of a CPU that is known to have none, a large product
// in f32 would be faster than 1 / kSlowerThanPeak of its peak.
double slow_gflops(const HostTime& host, const std::string& type, double f32) {
  if (f32 > 0) return f32 / kSlowerThanTrace;
  if (!lacks_instructions(host, type) || is_peak_too_low(host)) return kSlowProductGflops;
  return std::max(kSlowProductGflops, host.peaks->f32.value_or(0) / kSlowerThanPeak);
}

// Whether the CPU has instructions for the type, if that is known.
std::string instructions_text(const HostTime& host, const std::string& type) {
  const std::string cpu =
      host.peaks && !host.peaks->family.empty() ? host.peaks->family : "this CPU";
  if (lacks_instructions(host, type))
    return fmt::format("{} has no instructions for {}", cpu, type);
  if (has_instructions(host, type))
    return fmt::format("slow, although {} has instructions for {}", cpu, type);
  return fmt::format("{} most likely has no instructions for {}", cpu, type);
}

// The rate of f32 for a trace without f32 products.
std::string f32_text(const HostTime& host, const std::string& type) {
  const double limit = slow_gflops(host, type, 0);
  const std::string does =
      limit > kSlowProductGflops
          ? fmt::format("the {} for f32 is {:.0f} GFLOP/s",
                        host.peaks->is_estimate ? "estimated peak" : "peak", *host.peaks->f32)
          : fmt::format("one core does more than {:.0f} GFLOP/s in f32", kSlowProductGflops);
  return does + ": compare with f32 products of these sizes";
}

std::string dtype_advice(const HostTime& host, const std::string& type) {
  if (has_instructions(host, type))
    return "see that PyTorch uses them: torch.backends.mkldnn is enabled, ONEDNN_MAX_CPU_ISA is "
           "not set, and the virtual machine shows them (lscpu); else run in float32";
  return fmt::format("run in float32 (without torch.autocast), or on a CPU with {}",
                     type == "f16" ? "AVX512-FP16" : "AVX512-BF16 or AMX");
}

void find_slow_dtype(const Explanation& e, const StalledOps& stalled, std::vector<Finding>& out) {
  const HostTime& host = *e.host;
  const double f32 = fastest_of(host, "f32");
  // If everything is slow, the type need not be the cause.
  constexpr double kSomeShare = 0.02;
  const auto stalled_ns = static_cast<double>(stalled.result().ops.total_ns());
  if (f32 == 0 && stalled_ns > kSomeShare * static_cast<double>(host.wall_ns)) return;
  const auto slow = products_that(host, [&](const HostProduct& p) {
    return is_16_bit(p) && !p.waits_for_memory && flops_of(p) >= kLargeProductFlops &&
           p.gflops < slow_gflops(host, p.type, f32) &&
           fastest_of(host, p.type) < kSurelyFast * slow_gflops(host, p.type, f32);
  });
  const int64_t ns = total_of(slow);
  if (slow.empty() || !is_notable(host, ns)) return;
  const std::string& type = slow.front()->type;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("products in {} take {}: {}", type, share(host, ns),
                        instructions_text(host, type));
  add_product_lines(host, slow, f);
  if (f32 > 0) {
    f.evidence.push_back(fmt::format("f32 products of this trace reach {:.1f} GFLOP/s", f32));
    double saved_ns = 0;
    for (const HostProduct* p : slow)
      saved_ns += static_cast<double>(p->time.total_ns) * (1 - p->gflops / f32);
    f.saving_us = saved_ns / kNsPerUs;
  } else {
    f.evidence.push_back(f32_text(host, type));
  }
  f.cost_us = to_us(ns);
  advise(f, dtype_advice(host, type));
  claim_products(f, slow);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kSlowDtypeRule = {
    .id = "slow-dtype",
    .says =
        "that a CPU has no instructions for the type of large products, most likely, or, if "
        "`--cpu` names it, surely; or that it has them and they are not used",
    .said_if =
        [] {
          return fmt::format(
              "products of {:g} MFLOP or more take {}, and are slower than 1 / {} of the trace's "
              "f32 products; without those, slower than {} GFLOP/s, or, on a CPU that is known to "
              "have no such instructions, than 1 / {} of its f32 peak",
              kLargeProductFlops / 1e6, share_of_wall(), kSlowerThanTrace, kSlowProductGflops,
              kSlowerThanPeak);
        },
    .visits = visits_of<StalledOps, find_slow_dtype>()};

}  // namespace epilogue::trace
