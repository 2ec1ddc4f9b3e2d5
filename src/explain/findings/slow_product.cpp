// SPDX-License-Identifier: Apache-2.0
// Products of a device that take much of its time, far from what it can do.
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kMuchOfDevice = 0.2;  // of the device's working time
constexpr double kMuchOfSpan = 0.05;
constexpr int64_t kLeastRunNs = 20'000;  // shorter ones take what a launch takes
constexpr double kSlowPct = 50;          // of what peak and memory allow
constexpr double kGoodPct = 70;          // that products of good sizes reach
constexpr int64_t kFewRows = 64;         // fewer do not fill a tile
constexpr int64_t kTileAlignment = 16;
constexpr double kRaggedPct = 15;  // of the computed elements lie outside the result

std::string shape_line(const Gemm& g) {
  std::string line = gemm_line(g);
  if (!g.a_type.empty()) line += ", " + g.a_type;
  if (g.side)
    line += *g.side == RooflineSide::memory ? ", limited by memory" : ", limited by its FLOPs";
  return line;
}

// What its sizes say, and what to do; empty if they say nothing.
std::optional<std::pair<std::string, std::string>> reason_of_sizes(const Gemm& g) {
  const GemmShape& s = *g.shape;
  if (s.m < kFewRows)
    return std::pair(
        fmt::format("{} rows do not fill a tile of the kernel", s.m),
        std::string("would more rows in one launch do (larger batches, several requests "
                    "at once)? weights of fewer bytes (fp8, int8) help where memory is "
                    "the limit"));
  if (s.n % kTileAlignment != 0 || s.k % kTileAlignment != 0)
    return std::pair(fmt::format("{} x {} is no multiple of {}", s.n, s.k, kTileAlignment),
                     fmt::format("pad the layer's sizes to multiples of {}", kTileAlignment));
  if (g.tiling && g.tiling->padding_pct >= kRaggedPct)
    return std::pair(fmt::format("{:.0f} % of what the kernel computes lies outside of the result",
                                 g.tiling->padding_pct),
                     std::string("sizes that are multiples of the tile waste nothing"));
  return std::nullopt;
}

Finding slow_product(const Explanation& e, const Gemm& g) {
  Finding f;
  f.severity = Severity::warning;
  const double device_us = to_us(e.timeline.devices.front().busy_ns);
  const double cost_us = to_us(g.time.total_ns + g.reduction_ns);
  f.title = fmt::format("{} takes {:.0f} % of the device's time at {:.0f} % of what it could reach",
                        product_text(g), 100 * cost_us / device_us, *g.attainable_pct);
  f.evidence.push_back(shape_line(g));
  f.evidence.push_back("kernel " + g.kernel);
  if (const auto reason = reason_of_sizes(g)) {
    f.evidence.push_back(reason->first);
    advise(f, reason->second);
  } else {
    advise(f,
           "try other kernels for it: torch.compile(mode=\"max-autotune\"), TunableOp "
           "(PYTORCH_TUNABLEOP_ENABLED=1) on ROCm, another library version");
  }
  f.kernels = {g.kernel};
  f.cost_us = cost_us;
  f.saving_us = cost_us * (1 - *g.attainable_pct / kGoodPct);
  f.confidence = Confidence::low;
  return f;
}

// misaligned-product or wave-quantisation names what slows it.
bool has_reason(const std::vector<Finding>& said, const Gemm& g) {
  return std::ranges::any_of(said, [&](const Finding& f) {
    return (f.id == kMisalignedProductRule.id || f.id == kWaveQuantisationRule.id) &&
           std::ranges::find(f.kernels, g.kernel) != f.kernels.end() &&
           (f.title + f.evidence.front()).find(product_text(g)) != std::string::npos;
  });
}

void find_slow_products(const Explanation& e, std::vector<Finding>& out) {
  if (e.timeline.devices.empty()) return;
  const auto device_ns = static_cast<double>(e.timeline.devices.front().busy_ns);
  size_t shown = 0;
  for (const Gemm& g : e.gemms.gemms) {  // the longest first
    const auto ns = static_cast<double>(g.time.total_ns + g.reduction_ns);
    if (shown == kGemmsShown || ns < kMuchOfDevice * device_ns) return;
    if (to_us(g.time.total_ns) < kMuchOfSpan * wall_us(e) || g.time.median_ns < kLeastRunNs)
      continue;
    if (!g.shape || !g.attainable_pct || *g.attainable_pct >= kSlowPct) continue;
    // no-tensor-cores says why.
    if (g.uses_tensor_cores == false && !g.tensor_core_advice.empty()) continue;
    if (has_reason(out, g)) continue;
    out.push_back(slow_product(e, g));
    ++shown;
  }
}

}  // namespace

constinit const ExplanationRule kSlowProductRule = {
    .id = "slow-product",
    .says =
        "which matrix products take much of a device's time and are far from what its peak and "
        "memory allow",
    .said_if =
        [] {
          return fmt::format(
              "a product takes {} of the device's working time and {}, {} each time, and reaches "
              "less than {} of what peak and memory allow; not if it misses the tensor cores, or "
              "another finding says why",
              percent_text(kMuchOfDevice), share_of_span(kMuchOfSpan), duration(kLeastRunNs),
              percent_text(kSlowPct / 100));
        },
    .find = find_slow_products};

}  // namespace epilogue::trace
