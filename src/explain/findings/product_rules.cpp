// SPDX-License-Identifier: Apache-2.0
// Findings about matrix products.
#include <fmt/format.h>

#include <algorithm>

#include "explain/findings/rules.h"

namespace epilogue::trace {
namespace {

constexpr size_t kGemmsShown = 3;
constexpr int64_t kAlignment = 8;
constexpr int64_t kLeastAlignedSize = 64;
constexpr double kPoorPeakPct = 30;
constexpr double kMisalignedShare = 0.02;  // of the wall time
constexpr double kPoorWavePct = 75;  // below it, over a quarter of the device idles in whole waves

// "aten::mm 64 x 64 x 64"
std::string product_text(const Gemm& g) {
  const std::string& name = g.op.empty() ? g.kernel : g.op;
  if (!g.shape) return name + " of unknown shape";
  const std::string batch =
      g.shape->batch > 1 ? fmt::format("{} x ", g.shape->batch) : std::string();
  return fmt::format("{} {}{} x {} x {}", name, batch, g.shape->m, g.shape->n, g.shape->k);
}

std::string gemm_line(const Gemm& g) {
  std::string line =
      fmt::format("{}: {}, {}", product_text(g), counted(g.time.count, "execution", "executions"),
                  duration(g.time.total_ns));
  if (g.tflops) line += fmt::format(", {:.1f} TFLOP/s", *g.tflops);
  if (g.peak_pct) line += fmt::format(" ({:.0f} % of the peak for {})", *g.peak_pct, g.math_type);
  return line;
}

// Products that miss the tensor cores for one reason, by time.
struct TensorCoreMisses {
  std::vector<const Gemm*> gemms;
  int64_t total_ns = 0;
};

Finding tensor_core_finding(const TensorCoreMisses& misses) {
  const Gemm& first = *misses.gemms.front();
  Finding f;
  f.severity = Severity::warning;
  f.title =
      misses.gemms.size() == 1
          ? fmt::format("{} does not use tensor cores: {}", product_text(first),
                        first.tensor_core_note)
          : fmt::format("{} matrix products, {} in all, do not use tensor cores: {}",
                        misses.gemms.size(), duration(misses.total_ns), first.tensor_core_note);
  const size_t shown = std::min(kGemmsShown, misses.gemms.size());
  for (size_t i = 0; i < shown; ++i) {
    f.evidence.push_back(gemm_line(*misses.gemms[i]));
    f.kernels.push_back(misses.gemms[i]->kernel);
  }
  if (shown < misses.gemms.size())
    f.evidence.push_back(fmt::format("and {} more", misses.gemms.size() - shown));
  advise(f, first.tensor_core_advice);
  f.cost_us = to_us(misses.total_ns);
  return f;
}

Finding wave_finding(const Gemm& g) {
  Finding f;
  f.severity = Severity::warning;
  f.title = product_text(g) + " ends in a half-empty wave";
  f.kernels = {g.kernel};
  f.evidence.push_back(gemm_line(g));
  f.evidence.push_back(fmt::format(
      "{} tiles in waves of {}: {:.2f} waves take the time of {}; the last is {:.0f} % full",
      g.tiling->tiles, *g.tiling->tiles_per_wave, *g.tiling->waves,
      static_cast<int64_t>(*g.tiling->waves) + 1, g.tiling->last_wave_fill_pct.value_or(0)));
  return f;
}

// Products that nothing is known to bring to the tensor cores are no finding.
void find_tensor_core_misses(const Explanation& e, std::vector<Finding>& out) {
  std::vector<TensorCoreMisses> groups;
  for (const Gemm& g : e.gemms.gemms) {
    if (g.uses_tensor_cores != false || g.tensor_core_advice.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const TensorCoreMisses& other) {
      return other.gemms.front()->tensor_core_note == g.tensor_core_note;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), TensorCoreMisses());
    group->gemms.push_back(&g);
    group->total_ns += g.time.total_ns;
  }
  for (const TensorCoreMisses& group : groups)
    if (to_us(group.total_ns) >= kMinShare * wall_us(e)) out.push_back(tensor_core_finding(group));
}

int64_t padded(int64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// Tensor cores read 16 bytes at once: 8 elements of 16 bits.
bool is_misaligned(const Gemm& g) {
  if (!g.shape || !g.peak_pct || *g.peak_pct >= kPoorPeakPct) return false;
  if (g.a_type != "bf16" && g.a_type != "f16") return false;
  const GemmShape& s = *g.shape;
  if (std::min({s.m, s.n, s.k}) < kLeastAlignedSize) return false;  // its size is the cause
  return s.n % kAlignment != 0 || s.k % kAlignment != 0;
}

void find_misaligned_products(const Explanation& e, std::vector<Finding>& out) {
  size_t shown = 0;
  for (const Gemm& g : e.gemms.gemms) {
    if (shown == kGemmsShown || to_us(g.time.total_ns) < kMisalignedShare * wall_us(e)) return;
    if (!is_misaligned(g)) continue;
    const bool is_n = g.shape->n % kAlignment != 0;
    const int64_t size = is_n ? g.shape->n : g.shape->k;
    Finding f;
    f.severity = Severity::warning;
    f.title = fmt::format("{} runs at {:.0f} % of the peak: {} of {} is no multiple of {}",
                          product_text(g), *g.peak_pct, is_n ? "N" : "K", size, kAlignment);
    f.evidence.push_back(gemm_line(g));
    f.kernels = {g.kernel};
    advise(f, fmt::format("pad {} to {}: tensor cores read {} elements at once", is_n ? "N" : "K",
                          padded(size), kAlignment));
    f.cost_us = to_us(g.time.total_ns);
    out.push_back(std::move(f));
    ++shown;
  }
}

// Memory limits it: fuller waves would wait for the same bytes. Below so many FLOPs for each byte
// it does on any device with matrix units, whose rates are not needed then.
bool is_bound_by_memory(const Gemm& g) {
  constexpr double kFewFlopsPerByte = 50;
  if (g.side) return *g.side == RooflineSide::memory;
  return g.uses_tensor_cores.value_or(false) && g.intensity && *g.intensity < kFewFlopsPerByte;
}

void find_wave_quantisation(const Explanation& e, std::vector<Finding>& out) {
  size_t shown = 0;
  for (const Gemm& g : e.gemms.gemms) {
    if (shown == kGemmsShown || to_us(g.time.total_ns) < kMinShare * wall_us(e)) return;
    if (g.uses_tensor_cores == false && !g.tensor_core_note.empty()) continue;
    if (!g.tiling || !g.tiling->wave_efficiency_pct) continue;
    if (*g.tiling->wave_efficiency_pct >= kPoorWavePct || *g.tiling->waves <= 1) continue;
    if (is_bound_by_memory(g)) continue;
    out.push_back(wave_finding(g));
    ++shown;
  }
}

}  // namespace

constinit const ExplanationRule kNoTensorCoresRule = {"no-tensor-cores", find_tensor_core_misses};
constinit const ExplanationRule kMisalignedProductRule = {"misaligned-product",
                                                          find_misaligned_products};
constinit const ExplanationRule kWaveQuantisationRule = {"wave-quantisation",
                                                         find_wave_quantisation};

}  // namespace epilogue::trace
